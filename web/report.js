"use strict";
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main"), tip = document.getElementById("tip"), root = document.documentElement;

  // --- small things

  const KiB = 1024, MiB = KiB * 1024, GiB = MiB * 1024;
  const size = (n) => {  // as the command prints it
    const a = Math.abs(n);
    if (a >= 100 * MiB) return (n / GiB).toFixed(2) + " GiB";
    if (a >= MiB) return (n / MiB).toFixed(2) + " MiB";
    if (a >= KiB) return (n / KiB).toFixed(2) + " KiB";
    return n + " B";
  };
  const exact = (n) => n.toLocaleString("en-US") + " bytes";
  const percent = (part, whole) => (whole ? (100 * part / whole).toFixed(1) : "0.0") + " %";
  const seconds = (s) => s == null || !isFinite(s) ? "?" : s >= 1 ? s.toFixed(2) + " s" : s >= 1e-3 ? (s * 1e3).toFixed(2) + " ms" : (s * 1e6).toFixed(0) + " µs";

  // Some four round numbers between the two: 1, 2 or 5 times a power of ten apart.
  const ticks = (from, to) => {
    const rough = (to - from) / 4, ten = 10 ** Math.floor(Math.log10(rough)), step = ten * ([1, 2, 5].find((k) => k * ten >= rough) || 10), out = [];
    for (let v = Math.ceil(from / step) * step; v <= to + step * 1e-9; v += step) out.push(v);
    return out;
  };
  const rounded = (t, most) => most >= 1 ? +t.toFixed(3) + " s" : most >= 1e-3 ? +(t * 1e3).toFixed(3) + " ms" : +(t * 1e6).toFixed(3) + " µs";

  function make(tag, attributes, ...children) {
    const e = document.createElement(tag);
    for (const [k, v] of Object.entries(attributes || {})) {
      if (v == null || v === false) continue;
      if (k === "class") e.className = v;
      else if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
      else e.setAttribute(k, v === true ? "" : v);
    }
    e.append(...children.filter((c) => c != null));
    return e;
  }
  function svg(tag, attributes, ...children) {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
    e.append(...children);
    return e;
  }
  function section(id, title, note, long, short) {
    const s = make("section", {id, "aria-labelledby": id + "-h", class: long ? "long" : null}, make("h2", {id: id + "-h"}, title), note ? make("p", {class: "note"}, note) : null);
    main.append(s);
    document.getElementById("contents").append(make("a", {href: "#" + id}, short || title));
    return s;
  }
  // columns: [title, number?]; rows of texts or elements.
  function table(columns, rows, caption) {
    const body = make("tbody");
    for (const row of rows)
      body.append(make("tr", {}, ...row.map((cell, i) => make("td", {class: columns[i][1] ? "n" : columns[i][2] ? "w" : null}, cell ?? ""))));
    const t = make("table", {}, caption ? make("caption", {class: "note"}, caption) : null,
      make("thead", {}, make("tr", {}, ...columns.map((c) => make("th", {scope: "col", class: c[1] ? "n" : null}, c[0])))), body);
    return make("div", {class: "wide"}, t);
  }
  const meter = (part, whole) => {
    const i = make("i");
    i.style.width = Math.max(0, Math.min(100, 100 * part / (whole || 1))) + "%";
    return make("span", {class: "meter", "aria-hidden": "true"}, i);
  };
  const verdictClass = (v) => v === "fits" ? "fits" : v === "tight" ? "tight" : v === "does not fit" ? "no" : "none";
  const pill = (v) => make("span", {class: "pill v-" + verdictClass(v)}, v);
  function showTip(event, text) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(innerWidth - box.width - 4, event.clientX + 12)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  }
  const hideTip = () => { tip.hidden = true; };

  // --- colours: those of torch.profiler's memory timeline, others for what it has no name for; and a pattern for each

  const pytorchColours = {PARAMETER: "#006400", OPTIMIZER_STATE: "#daa520", INPUT: "#000000", TEMPORARY: "#9370db", ACTIVATION: "#ff0000",
    GRADIENT: "#0000cd", AUTOGRAD_DETAIL: "#4169e1"};
  const others = {buffer: "#2e8b57", ema: "#b8860b", workspace: "#808080", ddp_bucket: "#20b2aa"};
  const places = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#edc948", "#9c755f", "#ff9da7", "#8c8c8c"];
  const dark = () => root.classList.contains("dark") && !printing;
  let printing = false;
  const groups = page.timeline.groups.map((g, i) => ({
    name: g.name, pytorch: g.pytorch, pattern: i % 7,
    light: pytorchColours[g.pytorch] || others[g.name] || places[i % places.length],
    dark: {INPUT: "#d8dde3", PARAMETER: "#2f9e44", GRADIENT: "#5c7cfa", AUTOGRAD_DETAIL: "#8fb3ff", ACTIVATION: "#ff5a52"}[g.pytorch],
  }));
  const colour = (i) => i < 0 ? css("--hole") : dark() && groups[i].dark || groups[i].light;
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const bright = (hex) => {
    const n = parseInt(hex.slice(1), 16);
    return (n >> 16 & 255) * .3 + (n >> 8 & 255) * .59 + (n & 255) * .11 > 140;
  };
  const ink = (i) => bright(colour(i)) ? "#14181d" : "#ffffff";
  const label = (g) => g.pytorch && g.pytorch.toLowerCase().replace("_", " ") !== g.name.replace("_", " ") ? `${g.name} (${g.pytorch})` : g.pytorch || g.name;
  const patterns = new Map();
  function fill(context, i) {
    const key = i + (dark() ? "d" : "l");
    if (patterns.has(key)) return patterns.get(key);
    const tile = make("canvas", {width: 12, height: 12}), t = tile.getContext("2d");
    t.fillStyle = colour(i);
    t.fillRect(0, 0, 12, 12);
    t.strokeStyle = t.fillStyle = i < 0 ? css("--hatch") : bright(colour(i)) ? "rgba(0,0,0,.28)" : "rgba(255,255,255,.34)";
    t.lineWidth = 1.3;
    const line = (...p) => { t.beginPath(); for (let k = 0; k < p.length; k += 4) { t.moveTo(p[k], p[k + 1]); t.lineTo(p[k + 2], p[k + 3]); } t.stroke(); };
    const dot = (x, y, r) => { t.beginPath(); t.arc(x, y, r, 0, 7); t.fill(); };
    switch (i < 0 ? 1 : groups[i].pattern) {
      case 1: line(-2, 14, 14, -2, -8, 8, 8, -8, 4, 20, 20, 4); break;
      case 2: dot(3, 3, 1.4); dot(9, 9, 1.4); break;
      case 3: line(-2, -2, 14, 14, -8, 4, 8, 20, 4, -8, 20, 8); break;
      case 4: line(0, 3, 12, 3, 0, 9, 12, 9); break;
      case 5: line(3, 0, 3, 12, 9, 0, 9, 12); break;
      case 6: line(0, 6, 12, 6, 6, 0, 6, 12); break;
    }
    const pattern = context.createPattern(tile, "repeat");
    patterns.set(key, pattern);
    return pattern;
  }
  const redraws = [];
  function canvas(holder, height, draw) {
    const c = make("canvas", {});
    holder.append(c);
    const again = () => {
      const width = Math.max(1, holder.clientWidth), scale = devicePixelRatio || 1, h = height(width);
      c.width = Math.round(width * scale);
      c.height = Math.round(h * scale);
      c.style.height = h + "px";
      const context = c.getContext("2d");
      context.setTransform(scale, 0, 0, scale, 0, 0);
      draw(context, width, h);
    };
    redraws.push(again);
    return [c, again];
  }
  function legend(list, used) {
    for (let i = groups.length; i-- > 0;) {
      if (used && !used.has(i)) continue;
      const [c] = [make("canvas", {width: 26, height: 15, "aria-hidden": "true"})];
      redraws.push(() => { const x = c.getContext("2d"); x.fillStyle = fill(x, i); x.fillRect(0, 0, 26, 15); });
      list.append(make("li", {}, c, make("span", {}, label(groups[i]))));
    }
  }

  // --- head, verdict, numbers

  document.getElementById("title").textContent = page.title;
  document.getElementById("subtitle").textContent = page.subtitle;
  document.getElementById("foot").textContent = "Made by plimsoll report. Sizes are powers of two: 1 GiB is 1,073,741,824 bytes. " +
    (page.kind === "job" ? "The step was executed op by op under PyTorch's memory rules, without data and without a GPU." : "");
  {
    const v = page.verdict, s = make("section", {id: "verdict", class: "verdict s-" + verdictClass(v.state), "aria-label": "Verdict"});
    const words = {fits: "fits", tight: "tight", no: "does not fit", none: page.kind === "job" ? "no device named" : page.kind}[verdictClass(v.state)];
    s.append(make("div", {}, make("span", {class: "state"}, words), make("p", {class: "say"}, v.sentence), v.detail ? make("p", {class: "note"}, v.detail) : null));
    const cards = make("div", {class: "numbers"});
    const top = Math.max(page.capacity || 0, ...page.numbers.map((n) => n.high_bytes)) * 1.04 || 1;
    for (const n of page.numbers) {
      const place = (e, from, to) => { e.style.left = 100 * from / top + "%"; if (to != null) e.style.width = 100 * (to - from) / top + "%"; return e; };
      const gauge = make("div", {class: "gauge", "aria-hidden": "true"}, make("i", {class: "track"}),
        place(make("i", {class: "span"}), n.low_bytes, n.high_bytes), place(make("i", {class: "dot"}), n.bytes));
      if (page.capacity) gauge.append(place(make("i", {class: "cap", title: "the device has " + size(page.capacity)}), page.capacity));
      cards.append(make("div", {class: "number", "data-name": n.name, "data-bytes": n.bytes}, make("span", {class: "name"}, n.name), make("b", {title: exact(n.bytes)}, size(n.bytes)), gauge,
        make("div", {class: "soft"}, n.low_bytes === n.high_bytes ? "exact: " + exact(n.bytes) : size(n.low_bytes) + " to " + size(n.high_bytes)), make("div", {class: "meaning"}, n.meaning)));
    }
    if (page.numbers.length) s.append(cards);
    if (page.capacity) s.append(make("p", {class: "note"}, `The red line is what the device has: ${size(page.capacity)}. Intervals hold nine runs of ten.`));
    main.append(s);
  }

  // --- timeline: per column of pixels the moment with the most

  const T = page.timeline, N = T.bytes.length, K = groups.length;
  const total = new Float64Array(N + 1), parts = new Float64Array((N + 1) * K), held = new Float64Array(N + 1);
  let highest = 0;
  {
    for (let i = 0; i < N; ++i) {
      const from = i * K, to = from + K;
      for (let k = 0; k < K; ++k) parts[to + k] = parts[from + k];
      parts[to + T.group[i]] += T.bytes[i];
      total[i + 1] = total[i] + T.bytes[i];
      if (total[i + 1] > total[highest]) highest = i + 1;
    }
    let r = 0, now = 0;
    for (let i = 0; i <= N; ++i) {
      while (r < T.reserved.length && T.reserved[r] <= i) { now = T.reserved[r + 1]; r += 2; }
      held[i] = now;
    }
  }
  const marks = T.marks.map((m, i) => ({...m, end: (T.marks.slice(i + 1).find((n) => n.kind === "step" || m.kind === n.kind) || {at: N}).at}));
  const steps = marks.filter((m) => m.kind === "step");
  const phaseAt = (i) => { let name = ""; for (const m of marks) { if (m.at > i) break; name = m.kind === "step" ? m.name : name.split(", ")[0] + (name ? ", " : "") + m.name; } return name; };
  if (N > 0) {
    const s = section("timeline", "Over time", `What is alive, event by event${steps.length ? " of the run" : ""}. ` +
      (T.reserved.length ? "The line above is what the allocator holds from the device. " : "") + "Drag to zoom; with the plot focused, arrow keys move, + and − zoom, Home shows all.", false, "Timeline");
    const tools = make("div", {class: "tools", role: "group", "aria-label": "Part of the timeline"}), buttons = [];
    let first = 0, last = N, cursor = T.peak_at, drag = null;
    const holder = make("div", {class: "plot"}), read = make("p", {class: "read", "aria-live": "polite"});
    const left = 62, foot = 34;
    const maxOf = () => { let m = 1; for (let i = first; i <= last; ++i) m = Math.max(m, total[i], held[i]); return Math.max(m, page.capacity && page.capacity < 1.6 * m ? page.capacity : 0) * 1.06; };
    let most = 1;
    const [c, draw] = canvas(holder, (w) => Math.round(Math.max(250, Math.min(430, w * .42))), (x, w, h) => {
      const W = w - left, H = h - foot;
      most = maxOf();
      x.clearRect(0, 0, w, h);
      x.font = "11px system-ui, sans-serif";
      x.textBaseline = "middle";
      const y = (b) => H - b / most * H;
      const unit = most > 4 * GiB ? GiB : most > 4 * MiB ? MiB : KiB;
      let step = Math.pow(10, Math.floor(Math.log10(most / unit)));
      if (most / unit / step < 2.5) step /= 5; else if (most / unit / step < 5) step /= 2;
      x.textAlign = "right";
      for (let v = 0; v * unit < most; v += step) {
        x.strokeStyle = css("--line");
        x.lineWidth = 1;
        x.beginPath(); x.moveTo(left, Math.round(y(v * unit)) + .5); x.lineTo(w, Math.round(y(v * unit)) + .5); x.stroke();
        x.fillStyle = css("--soft");
        if (y(v * unit) > 8) x.fillText(+v.toFixed(3) + (unit === GiB ? " GiB" : unit === MiB ? " MiB" : " KiB"), left - 7, y(v * unit));
      }
      // one column a pixel: the moment of the largest sum stands for all
      const columns = Math.max(1, Math.floor(W)), at = new Int32Array(columns), span = last - first;
      for (let p = 0; p < columns; ++p) {
        const a = first + Math.floor(p * span / columns), b = Math.max(a, first + Math.floor((p + 1) * span / columns) - 1);
        let m = a;
        for (let i = a + 1; i <= b; ++i) if (total[i] > total[m]) m = i;
        at[p] = m;
      }
      const base = new Float64Array(columns);
      for (let k = 0; k < K; ++k) {
        let any = false;
        x.beginPath();
        x.moveTo(left, y(base[0]));
        for (let p = 0; p < columns; ++p) {
          const v = base[p] + parts[at[p] * K + k];
          any = any || v > base[p];
          x.lineTo(left + p, y(v));
          x.lineTo(left + p + 1, y(v));
        }
        for (let p = columns; p-- > 0;) { x.lineTo(left + p + 1, y(base[p])); x.lineTo(left + p, y(base[p])); base[p] += parts[at[p] * K + k]; }
        if (!any) continue;
        x.closePath();
        x.fillStyle = fill(x, k);
        x.fill();
      }
      // names inside bands that are thick enough
      x.textAlign = "center";
      for (let k = 0; k < K; ++k) {
        const name = groups[k].pytorch || groups[k].name, width = x.measureText(name).width, half = Math.ceil(width / 2) + 6;
        let best = 0, place = -1, middle = 0;
        for (let p = half; p < columns - half; p += 4) {
          let low = 0, high = 1e15;  // what the band covers all along the name
          for (let q = p - half; q <= p + half; q += 6) {
            let below = 0;
            for (let j = 0; j < k; ++j) below += parts[at[q] * K + j];
            low = Math.max(low, below);
            high = Math.min(high, below + parts[at[q] * K + k]);
          }
          if ((high - low) / most * H > best) { best = (high - low) / most * H; place = p; middle = (high + low) / 2; }
        }
        if (best < 14 || width > 130) continue;
        x.fillStyle = colour(k);
        x.fillRect(left + place - width / 2 - 4, y(middle) - 7, width + 8, 14);
        x.fillStyle = ink(k);
        x.fillText(name, left + place, y(middle));
      }
      if (T.reserved.length) {
        x.strokeStyle = css("--ink");
        x.lineWidth = 1.5;
        x.beginPath();
        for (let p = 0; p < columns; ++p) {
          const a = first + Math.floor(p * span / columns), b = Math.max(a, first + Math.floor((p + 1) * span / columns) - 1);
          let m = held[a];
          for (let i = a + 1; i <= b; ++i) m = Math.max(m, held[i]);
          x.lineTo(left + p, y(m)); x.lineTo(left + p + 1, y(m));
        }
        x.stroke();
      }
      if (page.capacity && page.capacity < most) {
        x.strokeStyle = css("--bad"); x.setLineDash([6, 4]); x.lineWidth = 1.5;
        x.beginPath(); x.moveTo(left, y(page.capacity)); x.lineTo(w, y(page.capacity)); x.stroke(); x.setLineDash([]);
        x.fillStyle = css("--bad"); x.textAlign = "right"; x.fillText("the device has " + size(page.capacity), w - 4, y(page.capacity) + (y(page.capacity) > 18 ? -9 : 10));
      }
      // steps and phases
      const px = (i) => left + (i - first) / Math.max(1, span) * W;
      x.textAlign = "left";
      for (const m of marks) {
        if (m.end <= first || m.at >= last || m.end === m.at) continue;
        const a = Math.max(left, px(m.at)), b = Math.min(w, px(m.end)), row = m.kind === "step" ? H + 25 : H + 10;
        x.strokeStyle = css("--soft"); x.lineWidth = 1;
        if (m.at >= first) { x.beginPath(); x.moveTo(Math.round(a) + .5, m.kind === "step" ? 0 : H); x.lineTo(Math.round(a) + .5, row + 7); x.globalAlpha = m.kind === "step" ? .45 : .8; x.stroke(); x.globalAlpha = 1; }
        if (x.measureText(m.name).width + 8 < b - a) { x.fillStyle = css(m.kind === "step" ? "--ink" : "--soft"); x.fillText(m.name, a + 4, row); }
      }
      if (cursor >= first && cursor <= last) {
        const cx = px(cursor), cy = y(total[cursor]);
        x.strokeStyle = css("--ink"); x.lineWidth = 1; x.setLineDash([2, 3]);
        x.beginPath(); x.moveTo(cx, 0); x.lineTo(cx, H); x.stroke(); x.setLineDash([]);
        x.fillStyle = css("--card"); x.beginPath(); x.arc(cx, cy, 4.5, 0, 7); x.fill(); x.strokeStyle = css("--ink"); x.lineWidth = 2; x.stroke();
      }
      if (drag && drag.to != null) { x.fillStyle = css("--accent"); x.globalAlpha = .18; x.fillRect(Math.min(drag.from, drag.to), 0, Math.abs(drag.to - drag.from), H); x.globalAlpha = 1; }
    });
    const describe = (i) => {
      const l = i > 0 ? T.labels[T.label[i - 1]] : "";
      return `${i === highest ? "The peak" : "Event " + i.toLocaleString("en-US")}${phaseAt(i - 1) ? ", " + phaseAt(i - 1) : ""}: ${size(total[i])} alive` +
        (held[i] ? `, ${size(held[i])} held` : "") + (l ? `. ${T.bytes[i - 1] < 0 ? "Freed" : "Allocated"} ${size(Math.abs(T.bytes[i - 1]))}, ${l}` : "");
    };
    const say = () => { read.textContent = describe(cursor); };
    const show = (a, b) => {
      first = Math.max(0, Math.min(a, N - 1)); last = Math.min(N, Math.max(b, first + Math.min(N, 8)));
      for (const [button, from, to] of buttons) button.setAttribute("aria-pressed", from === first && to === last);
      draw();
    };
    const choose = (name, from, to) => { const b = make("button", {type: "button", "aria-pressed": "false", onclick: () => show(from, to)}, name); buttons.push([b, from, to]); tools.append(b); };
    choose("whole run", 0, N);
    if (steps.length < 9) for (const m of steps) choose(m.name, m.at, m.end);
    tools.append(make("span", {class: "right"}), make("button", {type: "button", onclick: () => { cursor = highest; say(); if (highest < first || highest > last) show(0, N); else draw(); }}, "to the peak"),
      make("button", {type: "button", "aria-label": "zoom in", onclick: () => zoom(.5)}, "+"), make("button", {type: "button", "aria-label": "zoom out", onclick: () => zoom(2)}, "−"));
    const zoom = (by, centre = cursor >= first && cursor <= last ? cursor : (first + last) / 2) => { const f = (centre - first) / Math.max(1, last - first), n = Math.max(8, (last - first) * by); show(Math.round(centre - f * n), Math.round(centre + (1 - f) * n)); };
    c.tabIndex = 0;
    c.setAttribute("role", "img");
    c.setAttribute("aria-label", `Memory over ${N.toLocaleString("en-US")} events. The peak is ${size(total[highest])}, ${phaseAt(highest - 1)}.`);
    const eventAt = (e) => { const p = e.clientX - c.getBoundingClientRect().left, W = c.clientWidth - left; const a = first + (p - left) / W * (last - first), n = (last - first) / W;
      let m = Math.max(first, Math.min(last, Math.floor(a))); for (let i = m + 1; i < a + n && i <= last; ++i) if (total[i] > total[m]) m = i; return m; };
    const inside = (e) => Math.max(left, e.clientX - c.getBoundingClientRect().left);
    c.addEventListener("pointerdown", (e) => { drag = {from: inside(e), a: eventAt(e), to: null}; });
    c.addEventListener("pointermove", (e) => { cursor = eventAt(e); if (drag && e.buttons) drag.to = inside(e); showTip(e, describe(cursor)); say(); draw(); });
    c.addEventListener("pointerup", (e) => { const d = drag; drag = null; if (d && d.to != null && Math.abs(d.to - d.from) > 6) { const b = eventAt(e); show(Math.min(d.a, b), Math.max(d.a, b)); } else draw(); });
    c.addEventListener("pointerleave", () => { hideTip(); drag = null; draw(); });
    c.addEventListener("wheel", (e) => { if (!e.ctrlKey) return; e.preventDefault(); zoom(e.deltaY < 0 ? .8 : 1.25, eventAt(e)); }, {passive: false});
    c.addEventListener("keydown", (e) => {
      const n = Math.max(1, Math.round((last - first) / 100)) * (e.shiftKey ? 10 : 1);
      if (e.key === "ArrowRight") cursor = Math.min(N, cursor + n); else if (e.key === "ArrowLeft") cursor = Math.max(0, cursor - n);
      else if (e.key === "+" || e.key === "=") zoom(.5); else if (e.key === "-") zoom(2); else if (e.key === "Home" || e.key === "Escape") show(0, N); else return;
      e.preventDefault(); say(); draw();
    });
    s.append(tools, holder, read);
    const keys = make("ul", {class: "legend", "aria-label": "Colours and patterns"});
    legend(keys);
    s.append(keys);
    say();
    const worst = steps.find((m) => m.at < T.peak_at && T.peak_at <= m.end);
    if (worst) { first = worst.at; last = worst.end; }
    for (const [button, from, to] of buttons) button.setAttribute("aria-pressed", from === first && to === last);
    const rows = groups.map((g, k) => [label(g), size(parts[highest * K + k]), exact(parts[highest * K + k]), percent(parts[highest * K + k], total[highest])]).reverse();
    s.append(make("details", {}, make("summary", {}, "The peak in numbers"), table([["what"], ["at the peak", 1], ["exactly", 1], ["part", 1]], [...rows, ["all", size(total[highest]), exact(total[highest]), "100.0 %"]])));
    s.dataset.peak = total[highest];
    s.dataset.groups = JSON.stringify(groups.map((g, k) => [g.name, parts[highest * K + k]]));
  }

  // --- the peak as a tree

  if (page.tree && page.tree.bytes) {
    const s = section("peak", "What is alive at the peak", page.kind !== "job" && page.kind !== "trace" ? "From the outermost frame to the place that allocated. Choose a row to look into it." :
      "Category, module, op, tensor. Layers that are alike are one: .* stands for their numbers. Choose a box or a row to look into it.", false, "Peak");
    const crumbs = make("ol", {class: "crumbs", "aria-label": "Path"}), picture = make("div", {class: "icicle", "aria-hidden": "true"}), list = make("div");
    s.append(crumbs, picture, list);
    s.dataset.bytes = page.tree.bytes;
    const indexOf = new Map(groups.map((g, i) => [g.name, i]));
    const rows = 7, high = 1.7;
    let path = [page.tree];
    const groupOf = (nodes) => nodes.length > 1 && indexOf.has(nodes[1].name) ? indexOf.get(nodes[1].name) : null;
    const name = (n) => n.repeats > 1 ? `${n.name} × ${n.repeats}` : n.name;
    function box(nodes, from, share, depth) {
      if (depth >= rows || share < .002) return;
      const n = nodes[nodes.length - 1], g = groupOf(nodes), e = make("div", {});
      e.style.cssText = `left:${100 * from}%;width:${100 * share}%;top:${depth * high}rem;` + (g == null ? "background:var(--faint);color:var(--ink)" : `background:${colour(g)};color:${ink(g)};opacity:${1 - depth * .045}`);
      if (share * picture.clientWidth > 34) e.textContent = name(n);
      e.addEventListener("click", () => go(nodes));
      e.addEventListener("pointermove", (event) => showTip(event, `${nodes.slice(1).map((x) => x.name).join(" › ") || n.name}: ${size(n.bytes)}, ${percent(n.bytes, page.tree.bytes)}${n.repeats > 1 ? ", " + n.repeats + " alike" : ""}`));
      e.addEventListener("pointerleave", hideTip);
      picture.append(e);
      let x = from;
      for (const child of n.children || []) { const w = n.bytes ? share * child.bytes / n.bytes : 0; box([...nodes, child], x, w, depth + 1); x += w; }
    }
    const depthOf = (n, d = 1) => d >= rows ? d : Math.max(d, ...(n.children || []).map((c) => depthOf(c, d + 1)));
    function draw() {
      picture.replaceChildren();
      picture.style.height = depthOf(path[path.length - 1]) * high + "rem";
      box(path, 0, 1, 0);
    }
    function go(nodes) {
      path = nodes;
      const n = path[path.length - 1];
      crumbs.replaceChildren(...path.map((p, i) => make("li", {}, i === path.length - 1 ? make("b", {"aria-current": "true"}, name(p)) : make("button", {type: "button", class: "link", onclick: () => go(path.slice(0, i + 1))}, name(p)))),
        make("li", {class: "soft"}, size(n.bytes)));
      const children = n.children || [], shown = children.slice(0, 12), rest = children.slice(12);
      const row = (c) => [c.children ? make("button", {type: "button", class: "link", onclick: () => go([...path, c])}, name(c)) : name(c), size(c.bytes), percent(c.bytes, n.bytes), meter(c.bytes, n.bytes)];
      const all = shown.map(row);
      if (rest.length) { const b = rest.reduce((a, c) => a + c.bytes, 0); all.push([`${rest.length} smaller`, size(b), percent(b, n.bytes), meter(b, n.bytes)]); }
      list.replaceChildren(children.length ? table([["inside " + name(n), 0, 1], ["size", 1], ["part", 1], [""]], all) : make("p", {class: "note"}, `${exact(n.bytes)}${n.repeats > 1 ? " in " + n.repeats + " tensors" : ""}`));
      hideTip();
      draw();
    }
    redraws.push(draw);
    go(path);
  }

  // --- largest tensors

  if (page.estimate && page.estimate.largest.length) {
    const s = section("tensors", "Largest tensors at the peak", "Tensors of all layers that are alike are one row.", true, "Tensors");
    const rows = page.estimate.largest.map((t) => [size(t.bytes * t.count), t.count > 1 ? `${t.count} × ${size(t.bytes)}` : "", t.category, make("code", {}, t.shape), make("code", {}, t.module), make("code", {}, t.op)]);
    const columns = [["size", 1], ["each", 1], ["category"], ["shape and dtype", 0, 1], ["module", 0, 1], ["made by"]];
    s.append(table(columns, rows.slice(0, 12)));
    if (rows.length > 12) s.append(make("details", {}, make("summary", {}, `${rows.length - 12} more`), table(columns, rows.slice(12))));
  }

  // --- segments: memory as one strip, cut into lines

  if (page.segments) {
    const g = page.segments, s = section("segments", "Segments of the allocator", `${g.count.toLocaleString("en-US")} segments of ${size(g.reserved_bytes)} are held from the device at that moment; ${size(g.used_bytes)} are in use. ` +
      `Of the ${size(g.free_bytes)} that are free, the largest piece has ${size(g.largest_free_bytes)}; ${size(g.free_in_used_segments_bytes)} lie in segments that are in use, so that they cannot be given back.`, false, "Segments");
    const holder = make("div", {class: "plot"}), line = 16, gap = 5, boxes = [];
    const list = [...g.list].sort((a, b) => b.size - a.size);
    const lines = (w) => Math.max(4, Math.min(22, Math.round(9000 / w)));
    const [c] = canvas(holder, (w) => lines(w) * (line + gap), (x, w) => {
      boxes.length = 0;
      x.clearRect(0, 0, w, 4000);
      const bytesPerPixel = g.reserved_bytes / (lines(w) * w * .985);
      let at = 0;
      const paint = (bytes, group, text) => {
        let left = bytes / bytesPerPixel;
        while (left > 1e-6) {
          const row = Math.floor(at / w + 1e-9), col = at - row * w, n = Math.min(left, w - col);
          x.fillStyle = fill(x, group);
          if (row < lines(w)) x.fillRect(col, row * (line + gap), Math.max(n, .4), line);
          if (n > .6) boxes.push([col, row, n, text]);
          at += n; left -= n;
        }
      };
      for (const seg of list) {
        const start = at;
        for (let i = 0; i < seg.blocks.length; i += 3)
          paint(seg.blocks[i], seg.blocks[i + 1], seg.blocks[i + 1] < 0 ? `free: ${size(seg.blocks[i])} of a segment of ${size(seg.size)}` : `${size(seg.blocks[i])}, ${T.labels[seg.blocks[i + 2]]}; in a segment of ${size(seg.size)}`);
        if (at - start > 2.5) { const row = Math.floor((at - .5) / w); x.fillStyle = css("--ink"); x.fillRect(at - row * w - 1, row * (line + gap) - 2, 1.3, line + 4); }
      }
    });
    c.setAttribute("role", "img");
    c.setAttribute("aria-label", `Map of ${g.count} segments: ${size(g.used_bytes)} in use, ${size(g.free_bytes)} free.`);
    c.addEventListener("pointermove", (e) => {
      const r = c.getBoundingClientRect(), px = e.clientX - r.left, row = Math.floor((e.clientY - r.top) / (line + gap));
      const b = boxes.find((q) => q[1] === row && px >= q[0] && px <= q[0] + q[2]);
      if (b) showTip(e, b[3]); else hideTip();
    });
    c.addEventListener("pointerleave", hideTip);
    const free = make("canvas", {width: 26, height: 15, "aria-hidden": "true"});
    redraws.push(() => { const x = free.getContext("2d"); x.fillStyle = fill(x, -1); x.fillRect(0, 0, 26, 15); });
    const keys = make("ul", {class: "legend", "aria-label": "Colours and patterns"}, make("li", {}, free, make("span", {}, "free")));
    const used = new Set();
    for (const seg of g.list) for (let i = 1; i < seg.blocks.length; i += 3) used.add(seg.blocks[i]);
    legend(keys, used);
    const rows = list.slice(0, 12).map((q) => { let u = 0, hole = 0; for (let i = 0; i < q.blocks.length; i += 3) if (q.blocks[i + 1] < 0) hole = Math.max(hole, q.blocks[i]); else u += q.blocks[i];
      return [size(q.size), q.small ? "small" : "large", size(u), percent(u, q.size), hole ? size(hole) : "none", String(q.blocks.length / 3)]; });
    s.append(holder, keys, make("details", {}, make("summary", {}, "The largest segments as a table"), table([["segment", 1], ["pool"], ["in use", 1], ["part", 1], ["largest hole", 1], ["blocks", 1]], rows)));
  }

  // --- tables of a recorded run

  page.tables.forEach((t, i) => section("table" + i, t.title, t.note, true).append(table(t.columns.map((c, k) => [c, k > 0 && t.rows.every((r) => /^[-+]?[\d.,]+( |$|%)/.test(r[k]) || r[k] === "" || r[k] === "-"), k === 0]), t.rows)));

  // --- ranks

  if (page.ranks.length) {
    const s = section("ranks", "Ranks", "What each process needs on its device.");
    s.append(table([["rank"], ["allocated", 1], ["reserved", 1], ["device", 1], ["interval", 1]],
      page.ranks.map((r) => [r.name, size(r.allocated.bytes), size(r.reserved.bytes), size(r.device.bytes), size(r.device.low_bytes) + " to " + size(r.device.high_bytes)])));
  }

  // --- levers

  if (page.what_if && page.what_if.levers) {
    const w = page.what_if, saves = w.levers.filter((l) => l.outcome === "saves"), rest = w.levers.filter((l) => l.outcome !== "saves");
    const s = section("levers", "What each change would save", "Each alone, by executing the run with it.", true, "Levers");
    const most = Math.max(1, ...saves.map((l) => l.saving_bytes));
    s.append(table([["change", 0, 1], ["saves", 1], [""], ["then needs", 1], ...(w.target ? [["verdict"]] : []), ["result"], ["cost", 0, 1], ["flags", 0, 1]],
      saves.map((l) => [l.name, size(l.saving_bytes), meter(l.saving_bytes, most), size(l.device_bytes), ...(w.target ? [pill(l.verdict)] : []), l.kind, l.cost, make("code", {}, l.flags)])));
    if (rest.length) s.append(make("details", {}, make("summary", {}, `${rest.length} that do not help here`), table([["change", 0, 1], ["why", 0, 1]], rest.map((l) => [l.name, l.reason || (l.outcome === "costs memory" ? `takes ${size(-l.saving_bytes)} more` : "changes nothing here")]))));
    if (w.left_out) s.append(make("p", {class: "note"}, `Left out (${w.left_out.why}): ${w.left_out.levers.join("; ")}.`));
  }

  // --- plan: the ladder and the front

  if (page.plan) {
    const p = page.plan, perSample = (r) => r.time && r.time.samples_per_second ? 1 / r.time.samples_per_second : null;
    const s = section("plan", "Plan for " + p.device, p.plan ? `Of ${p.executed} candidates that were executed, the fastest that fits: ${p.plan.flags || "the run as it is"}.` :
      p.shortage ? `Nothing that may be changed makes it fit: ${size(p.shortage.missing_bytes)} are missing at the least.` : "", false, "Plan");
    const both = make("div", {class: "two"});
    s.append(both);
    const front = p.front.filter((r) => perSample(r));
    if (front.length > 1) {
      const W = 520, H = 250, L = 58, B = 34, points = [...front];
      const fx = points.map((r) => r.device_peak.bytes), fy = points.map(perSample);
      const x0 = Math.min(...fx) * .9, x1 = Math.max(...fx, p.limit_bytes || 0) * 1.04, y1 = Math.max(...fy) * 1.08;
      const X = (b) => L + (b - x0) / (x1 - x0) * (W - L - 8), Y = (t) => H - B - t / y1 * (H - B - 8);
      const plot = svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Device memory against seconds a sample; a table follows", width: "100%"});
      for (const t of ticks(0, y1)) plot.append(svg("line", {x1: L, x2: W - 8, y1: Y(t), y2: Y(t), stroke: "var(--line)"}), svg("text", {x: L - 6, y: Y(t) + 4, "text-anchor": "end"}, rounded(t, y1)));
      for (const b of ticks(x0 / GiB, x1 / GiB)) plot.append(svg("line", {x1: X(b * GiB), x2: X(b * GiB), y1: H - B, y2: H - B + 4, stroke: "var(--soft)"}), svg("text", {x: X(b * GiB), y: H - 14, "text-anchor": "middle"}, +b.toFixed(3) + " GiB"));
      if (p.limit_bytes >= x0 && p.limit_bytes <= x1) plot.append(svg("line", {x1: X(p.limit_bytes), x2: X(p.limit_bytes), y1: 4, y2: H - B, stroke: "var(--bad)", "stroke-dasharray": "5 4", "stroke-width": 1.5}), svg("text", {x: X(p.limit_bytes) - 5, y: 14, "text-anchor": "end", style: "fill:var(--bad)"}, "limit"));
      plot.append(svg("polyline", {points: points.map((r) => `${X(r.device_peak.bytes)},${Y(perSample(r))}`).join(" "), fill: "none", stroke: "var(--accent)", "stroke-opacity": .5}));
      for (const r of points) plot.append(svg("circle", {cx: X(r.device_peak.bytes), cy: Y(perSample(r)), r: 4, fill: "var(--accent)"}, svg("title", {}, `${size(r.device_peak.bytes)}, ${seconds(perSample(r))} a sample: ${r.flags || "as it is"}`)));
      const diamond = (r, text, below) => { const x = X(r.device_peak.bytes), y = Y(perSample(r)); if (!(x >= L && x <= W && y >= 0)) return; plot.append(svg("path", {d: `M${x - 7} ${y}l7 -7l7 7l-7 7z`, fill: "var(--card)", stroke: "var(--ink)", "stroke-width": 2}), svg("text", {x: Math.min(x, W - 40), y: y + (below ? 22 : -12), "text-anchor": "middle", style: "fill:var(--ink);font-weight:600"}, text)); };
      if (p.as_is && perSample(p.as_is)) diamond(p.as_is, "as it is", true);
      if (p.plan && perSample(p.plan)) diamond(p.plan, "plan", false);
      both.append(make("div", {}, make("h3", {}, "Memory against time a sample"), plot, make("p", {class: "note"}, "Those that no other beats in both. Times are a roofline estimate, good for ranking."),
        make("details", {}, make("summary", {}, "As a table"), table([["needs", 1], ["a sample", 1], ["flags", 0, 1]], points.map((r) => [size(r.device_peak.bytes), seconds(perSample(r)), make("code", {}, r.flags || "as it is")])))));
    }
    const ladder = (rows, title) => make("div", {}, make("h3", {}, title), table([["step", 0, 1], ["needs", 1], ["of the device", 1], ["batch", 1], ["a sample", 1]],
      rows.map((r) => [r.name, size(r.device_peak.bytes), (100 * r.share).toFixed(0) + " %", r.batch + (r.accumulation > 1 ? " × " + r.accumulation : ""), seconds(perSample(r))])));
    const right = make("div", {});
    if (p.ladder.length) right.append(ladder(p.ladder, "Ladder: closer to the edge"));
    if (p.after_oom.length) right.append(ladder(p.after_oom, "After an out-of-memory: one step after the other"));
    both.append(right);
    if (p.batch) s.append(make("p", {}, `Batch: at most ${p.batch.maximum}, recommended at most ${p.batch.recommended}${p.batch.note ? "; " + p.batch.note : ""}.`));
    const one = Object.entries(p.sensitivity || {});
    if (one.length) s.append(make("p", {}, "One more costs: " + one.map(([k, v]) => `${k} ${size(v)}`).join(", ") + "."));
  }

  // --- devices

  if (page.fits.length) {
    const s = section("devices", "On which devices it fits", null, true, "Devices");
    const asked = page.fits.slice(0, page.asked), rest = page.fits.slice(page.asked).sort((a, b) => a.capacity.bytes - b.capacity.bytes);
    const most = Math.max(...page.fits.map((f) => Math.max(f.capacity ? f.capacity.bytes : 0)));
    const search = make("input", {type: "search", placeholder: "filter by name", "aria-label": "Filter devices by name"}), holder = make("div");
    let everything = false;
    const button = make("button", {type: "button", "aria-pressed": "false", onclick: () => { everything = !everything; button.setAttribute("aria-pressed", everything); draw(); }}, "all devices");
    const row = (f) => [f.device, f.capacity ? size(f.capacity.bytes) : "?", size(f.device_peak.bytes), f.margin_bytes == null ? "?" : (f.margin_bytes >= 0 ? "+" : "−") + size(Math.abs(f.margin_bytes)), pill(f.verdict), f.capacity ? meter(Math.min(f.device_peak.bytes, f.capacity.bytes), f.capacity.bytes) : "", f.reason];
    function draw() {
      const word = search.value.trim().toLowerCase(), known = (f) => f.device.toLowerCase().includes(word) || f.device_id.includes(word);
      // without a wish: those around the edge, smallest that fits first
      const sure = rest.filter((f) => f.verdict !== "unknown"), edge = sure.findIndex((f) => f.verdict === "fits");
      const near = edge < 0 ? sure.slice(-10) : sure.slice(Math.max(0, edge - 4), edge + 8);
      const rows = word ? page.fits.filter(known) : everything ? [...asked, ...rest] : [...asked, ...near];
      holder.replaceChildren(rows.length ? table([["device", 0, 1], ["has", 1], ["needs", 1], ["margin", 1], ["verdict"], ["use"], ["why", 0, 1]], rows.map(row)) : make("p", {class: "note"}, "No device of that name."));
    }
    search.addEventListener("input", draw);
    if (rest.length) s.append(make("p", {class: "note"}, `It fits ${page.fits.filter((f) => f.verdict === "fits").length} of ${page.fits.length} devices; shown are those around the edge.`), make("div", {class: "tools"}, search, button));
    s.append(holder);
    draw();
  }

  // --- where it comes from

  if (page.origins.length) {
    const s = section("origins", "Where every value comes from", null, true, "Origins"), rows = (part) => page.origins.filter((o) => o.part === part).map((o) => [make("code", {}, o.name), make("code", {}, o.value), o.origin]);
    const columns = [["setting"], ["value", 0, 1], ["origin", 0, 1]];
    const both = make("div", {class: "two"});
    both.append(make("div", {}, make("h3", {}, "The run"), table(columns, rows("run"))), make("div", {}, make("h3", {}, "The model"), table(columns, rows("model"))));
    s.append(both);
    if (page.findings.length) s.append(make("h3", {}, "Declared and effective"), table([["effect"], ["setting", 0, 1], ["what happens", 0, 1], ["where", 0, 1]], page.findings.map((f) => [f.effect, make("code", {}, f.setting), f.what + (f.why ? " (" + f.why + ")" : ""), f.source])));
  }
  if (page.assumptions.length || page.not_modelled.length) {
    const s = section("sure", page.kind === "job" ? "How sure" : "Notes"), list = (items) => make("ul", {class: "plain"}, ...items.map((t) => make("li", {}, t)));
    if (page.assumptions.length) s.append(page.kind === "job" ? make("h3", {}, "Assumed") : "", list(page.assumptions));
    if (page.not_modelled.length) s.append(make("h3", {}, "Not modelled"), list(page.not_modelled));
  }

  // --- light and dark, sizes, paper

  const theme = document.getElementById("theme"), all = () => { patterns.clear(); for (const draw of redraws) draw(); };
  const set = (isDark) => { root.classList.toggle("dark", isDark); theme.textContent = isDark ? "Light" : "Dark"; theme.setAttribute("aria-pressed", "false"); all(); };
  theme.addEventListener("click", () => set(!root.classList.contains("dark")));
  const wanted = matchMedia("(prefers-color-scheme: dark)");
  wanted.addEventListener("change", () => set(wanted.matches));
  set(wanted.matches);
  let waiting = 0, width = innerWidth;
  addEventListener("resize", () => { if (innerWidth === width) return; width = innerWidth; cancelAnimationFrame(waiting); waiting = requestAnimationFrame(all); });
  addEventListener("beforeprint", () => { printing = true; all(); });
  addEventListener("afterprint", () => { printing = false; all(); });
  root.dataset.ready = "yes";
})();
