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

  // From a file there may be no clipboard to write to: then a field that is selected and copied, as browsers have always had.
  async function copy(text) {
    try { return await navigator.clipboard.writeText(text); } catch { /* not allowed here */ }
    const field = make("textarea", {readonly: true, class: "copied", "aria-hidden": "true"});
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  function copyButton(text, title) {
    let back = 0;
    const b = make("button", {type: "button", class: "copy", title: text, onclick: async () => {
      await copy(text);
      b.textContent = "Copied";
      clearTimeout(back);
      back = setTimeout(() => { b.textContent = title; }, 1500);
    }}, title);
    return b;
  }

  // --- colours: what people think of as one has one, from the command's own table; on paper it has a pattern too

  const dark = () => root.classList.contains("dark") && !printing;
  let printing = false;
  const looks = [], lookOf = [];  // of each group of the data, its look
  for (const g of page.timeline.groups) {
    let i = looks.findIndex((l) => l.name === g.group);
    if (i < 0) i = looks.push({name: g.group, colour: g.colour, hidden: false}) - 1;
    lookOf.push(i);
  }
  const groups = page.timeline.groups, L = looks.length;
  const colour = (i) => i < 0 ? css("--hole") : looks[i].colour;
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const bright = (hex) => {
    const n = parseInt(hex.slice(1), 16);
    return (n >> 16 & 255) * .3 + (n >> 8 & 255) * .59 + (n & 255) * .11 > 140;
  };
  const ink = (i) => bright(colour(i)) ? "#14181d" : "#ffffff";
  const patterns = new Map();
  function fill(context, i) {
    if (!printing && i >= 0) return colour(i);
    const key = i + (dark() ? "d" : "l");
    if (patterns.has(key)) return patterns.get(key);
    const tile = make("canvas", {width: 12, height: 12}), t = tile.getContext("2d");
    t.fillStyle = colour(i);
    t.fillRect(0, 0, 12, 12);
    t.strokeStyle = t.fillStyle = i < 0 ? css("--hatch") : bright(colour(i)) ? "rgba(0,0,0,.28)" : "rgba(255,255,255,.34)";
    t.lineWidth = 1.3;
    const line = (...p) => { t.beginPath(); for (let k = 0; k < p.length; k += 4) { t.moveTo(p[k], p[k + 1]); t.lineTo(p[k + 2], p[k + 3]); } t.stroke(); };
    const dot = (x, y, r) => { t.beginPath(); t.arc(x, y, r, 0, 7); t.fill(); };
    switch (i < 0 ? 1 : i % 7) {
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
  // With `toggled`, a look can be hidden: called after each change.
  function legend(list, used, toggled) {
    for (let i = L; i-- > 0;) {
      if (used && !used.has(i)) continue;
      const c = make("canvas", {width: 22, height: 14, "aria-hidden": "true"});
      redraws.push(() => { const x = c.getContext("2d"); x.fillStyle = fill(x, i); x.fillRect(0, 0, 22, 14); });
      const name = make("span", {}, looks[i].name);
      if (!toggled) { list.append(make("li", {}, c, name)); continue; }
      const b = make("button", {type: "button", class: "key", "aria-pressed": "true", title: "show or hide", onclick: () => {
        looks[i].hidden = !looks[i].hidden;
        b.setAttribute("aria-pressed", !looks[i].hidden);
        toggled();
      }}, c, name);
      list.append(make("li", {}, b));
    }
  }

  // --- head, verdict, numbers

  document.getElementById("title").textContent = page.title;
  {
    // A long list of settings is folded where it stands.
    const short = 110, text = page.subtitle, cut = text.length > short + 20 ? text.lastIndexOf(", ", short) : -1;
    document.getElementById("subtitle").append(cut < 0 ? make("p", {}, text) :
      make("details", {}, make("summary", {}, text.slice(0, cut) + ", …"), make("p", {}, text)));
  }
  document.getElementById("foot").textContent = "Made by plimsoll report. Sizes are powers of two: 1 GiB is 1,073,741,824 bytes. " +
    (page.kind === "job" ? "The step was executed op by op under PyTorch's memory rules, without data and without a GPU." : "");
  function memoryBar(b) {
    const sum = b.parts.reduce((a, p) => a + p.bytes, 0), whole = Math.max(sum, b.limit_bytes || 0), bar = make("div", {class: "memory", "aria-hidden": "true"});
    for (const p of b.parts) {
      const i = make("i", {title: `${p.name}: ${size(p.bytes)}`});
      i.style.width = 100 * p.bytes / whole + "%";
      i.style.background = p.colour;
      bar.append(i);
    }
    if (b.limit_bytes) {
      const l = make("i", {class: sum > b.limit_bytes ? "limit over" : "limit"});
      l.style.left = `min(${100 * b.limit_bytes / whole}%, calc(100% - 2px))`;
      bar.append(l);
    }
    const keys = make("ul", {class: "legend", "aria-label": "What fills the memory at the peak"});
    for (const p of b.parts) {
      const c = make("i", {class: "square"});
      c.style.background = p.colour;
      keys.append(make("li", {}, c, `${p.name} ${size(p.bytes)}`));
    }
    if (b.limit_bytes) keys.append(make("li", {}, make("i", {class: "tick"}), `${b.limit_name} ${size(b.limit_bytes)}`));
    return make("div", {}, bar, keys);
  }
  const measured = (name) => page.measured && page.measured.numbers.find((n) => n.name === name);
  {
    const v = page.verdict, s = make("section", {id: "verdict", class: "verdict s-" + verdictClass(v.state), "aria-label": "Verdict"});
    const words = {fits: "fits", tight: "tight", no: "does not fit", none: page.kind === "job" ? "no device named" : page.kind}[verdictClass(v.state)];
    s.append(make("div", {}, make("span", {class: "state"}, words), make("p", {class: "say"}, v.sentence), v.detail ? make("p", {class: "note"}, v.detail) : null));
    if (page.bar && page.bar.parts.length) s.append(memoryBar(page.bar));
    const cards = make("div", {class: "numbers"});
    const top = Math.max(page.capacity || 0, ...page.numbers.map((n) => n.high_bytes), ...(page.measured ? page.measured.numbers.map((n) => n.bytes) : [])) * 1.04 || 1;
    for (const n of page.numbers) {
      const place = (e, from, to) => { e.style.left = 100 * from / top + "%"; if (to != null) e.style.width = 100 * (to - from) / top + "%"; return e; };
      const gauge = make("div", {class: "gauge", "aria-hidden": "true"}, make("i", {class: "track"}),
        place(make("i", {class: "span"}), n.low_bytes, n.high_bytes), place(make("i", {class: "dot"}), n.bytes));
      if (page.capacity) gauge.append(place(make("i", {class: n.bytes > page.capacity ? "cap over" : "cap", title: "the limit is " + size(page.capacity)}), page.capacity));
      const real = measured(n.name);
      if (real) gauge.append(place(make("i", {class: "real", title: "measured: " + size(real.bytes)}), Math.min(real.bytes, top)));
      cards.append(make("div", {class: "number", "data-name": n.name, "data-bytes": n.bytes}, make("span", {class: "name"}, n.name), make("b", {title: exact(n.bytes)}, size(n.bytes)), gauge,
        make("div", {class: "soft"}, n.low_bytes === n.high_bytes ? exact(n.bytes) : size(n.low_bytes) + " to " + size(n.high_bytes)), real ? make("div", {}, "measured: " + size(real.bytes)) : null, make("div", {class: "meaning"}, n.meaning)));
    }
    if (page.numbers.length) s.append(cards);
    if (page.capacity && page.kind === "job") s.append(make("p", {class: "note"}, `The line across is what the device has: ${size(page.capacity)}. It is red when the need is over it.`));
    const tools = make("div", {class: "tools"}, copyButton(page.title + ": " + page.headline, "Copy the answer"));
    if (page.commands) tools.append(copyButton(page.commands.run, "Copy this command"));
    const picture = document.querySelector('meta[property="og:image"]');
    if (picture && picture.content.startsWith("data:image/png")) tools.append(make("a", {class: "button", href: picture.content, download: page.title.replace(/[^\w.-]+/g, "-") + ".png"}, "Save as a picture"));
    s.append(tools);
    main.append(s);
  }

  // --- timeline: per column of pixels the moment with the most

  const T = page.timeline, N = T.bytes.length, K = groups.length, START = T.begins_at;
  const total = new Float64Array(N + 1), parts = new Float64Array((N + 1) * K), held = new Float64Array(N + 1);
  let highest = 0;
  {
    for (let i = 0; i < N; ++i) {
      const from = i * K, to = from + K;
      for (let k = 0; k < K; ++k) parts[to + k] = parts[from + k];
      parts[to + T.group[i]] += T.bytes[i];
      total[i + 1] = total[i] + T.bytes[i];
      if (i + 1 >= START && total[i + 1] > total[highest]) highest = i + 1;
    }
    if (START && total[START] >= total[highest]) highest = START;
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
    const s = section("timeline", "Over time", "Allocated memory after every event, by " + (page.kind === "snapshot" ? "who allocated it." : "category.") + (T.reserved.length ? " The line above is reserved memory: with the allocator's cache." : "") +
      " Drag to zoom; choose a name below to hide it. Keys: arrows, + and −, Home.", false, "Timeline");
    const tools = make("div", {class: "tools", role: "group", "aria-label": "Part of the timeline"}), buttons = [];
    let first = START, last = N, cursor = Math.max(T.peak_at, START), drag = null;
    const holder = make("div", {class: "plot"}), read = make("p", {class: "read", "aria-live": "polite"});
    const left = 62, foot = 34;
    const limit = page.capacity, over = limit && total.some((t, i) => t > limit || held[i] > limit);
    const visible = (i) => { let sum = 0; for (let k = 0; k < K; ++k) if (!looks[lookOf[k]].hidden) sum += parts[i * K + k]; return sum; };
    const hides = () => looks.some((l) => l.hidden);
    const maxOf = () => { let m = 1; for (let i = first; i <= last; ++i) m = Math.max(m, hides() ? visible(i) : total[i], hides() ? 0 : held[i]);
      for (const f of T.failures) if (!hides() && f.at >= first && f.at <= last) m = Math.max(m, total[f.at] + f.bytes); return Math.max(m, page.capacity && page.capacity < 1.6 * m ? page.capacity : 0) * 1.06; };
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
      const columns = Math.max(1, Math.floor(W)), at = new Int32Array(columns), span = last - first, states = span + 1;
      const range = (p) => { const a = first + Math.floor(p * states / columns); return [a, Math.max(a, first + Math.floor((p + 1) * states / columns) - 1)]; };
      for (let p = 0; p < columns; ++p) {
        const [a, b] = range(p);
        let m = a;
        for (let i = a + 1; i <= b; ++i) if (total[i] > total[m]) m = i;
        at[p] = m;
      }
      const base = new Float64Array(columns), bands = Array.from({length: L}, () => new Float64Array(columns));
      for (let k = 0; k < K; ++k) for (let p = 0; p < columns; ++p) if (!looks[lookOf[k]].hidden) bands[lookOf[k]][p] += parts[at[p] * K + k];
      for (let l = 0; l < L; ++l) {
        if (!bands[l].some((v) => v > 0)) continue;
        x.beginPath();
        x.moveTo(left, y(base[0]));
        for (let p = 0; p < columns; ++p) { const v = base[p] + bands[l][p]; x.lineTo(left + p, y(v)); x.lineTo(left + p + 1, y(v)); }
        for (let p = columns; p-- > 0;) { x.lineTo(left + p + 1, y(base[p])); x.lineTo(left + p, y(base[p])); base[p] += bands[l][p]; }
        x.closePath();
        x.fillStyle = fill(x, l);
        x.fill();
      }
      // names inside bands that are thick enough
      x.textAlign = "center";
      for (let l = 0; l < L; ++l) {
        const name = looks[l].name, width = x.measureText(name).width, half = Math.ceil(width / 2) + 6;
        let best = 0, place = -1, middle = 0;
        for (let p = half; p < columns - half; p += 4) {
          let low = 0, high = 1e15;  // what the band covers all along the name
          for (let q = p - half; q <= p + half; q += 6) {
            let below = 0;
            for (let j = 0; j < l; ++j) below += bands[j][q];
            low = Math.max(low, below);
            high = Math.min(high, below + bands[l][q]);
          }
          if ((high - low) / most * H > best) { best = (high - low) / most * H; place = p; middle = (high + low) / 2; }
        }
        if (best < 14 || width > 170) continue;
        x.fillStyle = colour(l);
        x.fillRect(left + place - width / 2 - 4, y(middle) - 7, width + 8, 14);
        x.fillStyle = ink(l);
        x.fillText(name, left + place, y(middle));
      }
      if (T.reserved.length && !hides()) {
        x.strokeStyle = css("--ink");
        x.lineWidth = 1.5;
        x.beginPath();
        for (let p = 0; p < columns; ++p) {
          const [a, b] = range(p);
          let m = held[a];
          for (let i = a + 1; i <= b; ++i) m = Math.max(m, held[i]);
          x.lineTo(left + p, y(m)); x.lineTo(left + p + 1, y(m));
        }
        x.stroke();
      }
      if (limit && limit < most) {
        x.strokeStyle = x.fillStyle = css(over || T.failures.length ? "--bad" : "--ink"); x.setLineDash([6, 4]); x.lineWidth = 1.5;
        x.beginPath(); x.moveTo(left, y(limit)); x.lineTo(w, y(limit)); x.stroke(); x.setLineDash([]);
        x.textAlign = T.failures.length ? "left" : "right"; x.fillText("limit " + size(limit), T.failures.length ? left + 6 : w - 4, y(limit) + (y(limit) > 18 ? -9 : 10));
      }
      for (const f of T.failures) {
        if (hides() || f.at < first || f.at > last) continue;
        const fx = left + (f.at - first + 1) / states * W - 2;
        x.strokeStyle = x.fillStyle = css("--bad"); x.lineWidth = 3; x.setLineDash([4, 3]);
        x.beginPath(); x.moveTo(fx, y(total[f.at])); x.lineTo(fx, y(total[f.at] + f.bytes)); x.stroke(); x.setLineDash([]);
        const text = "asked for " + size(f.bytes), room = x.measureText(text).width + 12;
        x.textAlign = fx - left > room ? "right" : "left";
        x.fillText(text, fx + (fx - left > room ? -7 : 7), y(total[f.at] + f.bytes / 2));
      }
      // steps and phases
      const px = (i) => left + (i - first) / states * W;
      x.textAlign = "left";
      for (const m of marks) {
        if (m.end <= first || m.at >= last || m.end === m.at) continue;
        const a = Math.max(left, px(m.at)), b = Math.min(w, px(m.end)), row = m.kind === "step" ? H + 25 : H + 10;
        x.strokeStyle = css("--soft"); x.lineWidth = 1;
        if (m.at >= first) { x.beginPath(); x.moveTo(Math.round(a) + .5, m.kind === "step" ? 0 : H); x.lineTo(Math.round(a) + .5, row + 7); x.globalAlpha = m.kind === "step" ? .45 : .8; x.stroke(); x.globalAlpha = 1; }
        if (x.measureText(m.name).width + 8 < b - a) { x.fillStyle = css(m.kind === "step" ? "--ink" : "--soft"); x.fillText(m.name, a + 4, row); }
      }
      if (cursor >= first && cursor <= last) {
        const cx = left + (cursor - first + .5) / states * W, cy = y(hides() ? visible(cursor) : total[cursor]);
        x.strokeStyle = css("--ink"); x.lineWidth = 1; x.setLineDash([2, 3]);
        x.beginPath(); x.moveTo(cx, 0); x.lineTo(cx, H); x.stroke(); x.setLineDash([]);
        x.fillStyle = css("--card"); x.beginPath(); x.arc(cx, cy, 4.5, 0, 7); x.fill(); x.strokeStyle = css("--ink"); x.lineWidth = 2; x.stroke();
      }
      if (drag && drag.to != null) { x.fillStyle = css("--accent"); x.globalAlpha = .18; x.fillRect(Math.min(drag.from, drag.to), 0, Math.abs(drag.to - drag.from), H); x.globalAlpha = 1; }
    });
    const describe = (i) => {
      const l = i > START ? T.labels[T.label[i - 1]] : "";
      return `${i === highest ? "The peak" : START && i === START ? "The recording begins" : "Event " + i.toLocaleString("en-US")}${phaseAt(i - 1) ? ", " + phaseAt(i - 1) : ""}: ${size(total[i])} allocated` +
        (held[i] ? `, ${size(held[i])} reserved` : "") + (l ? `. ${T.bytes[i - 1] < 0 ? "Freed" : "Allocated"} ${size(Math.abs(T.bytes[i - 1]))}, ${l}` : "");
    };
    const say = () => { read.textContent = describe(cursor); };
    const show = (a, b) => {
      first = Math.max(START, Math.min(a, N - 1)); last = Math.min(N, Math.max(b, first + Math.min(N, 8)));
      for (const [button, from, to] of buttons) button.setAttribute("aria-pressed", from === first && to === last);
      draw();
    };
    const choose = (name, from, to) => { const b = make("button", {type: "button", "aria-pressed": "false", onclick: () => show(from, to)}, name); buttons.push([b, from, to]); tools.append(b); };
    choose(page.kind === "job" ? "whole run" : "all of it", START, N);
    if (steps.length < 9) for (const m of steps) choose(m.name, m.at, m.end);
    tools.append(make("span", {class: "right"}), make("button", {type: "button", onclick: () => { cursor = highest; say(); if (highest < first || highest > last) show(START, N); else draw(); }}, "to the peak"),
      make("button", {type: "button", "aria-label": "zoom in", onclick: () => zoom(.5)}, "+"), make("button", {type: "button", "aria-label": "zoom out", onclick: () => zoom(2)}, "−"));
    const zoom = (by, centre = cursor >= first && cursor <= last ? cursor : (first + last) / 2) => { const f = (centre - first) / Math.max(1, last - first), n = Math.max(8, (last - first) * by); show(Math.round(centre - f * n), Math.round(centre + (1 - f) * n)); };
    c.tabIndex = 0;
    c.setAttribute("role", "img");
    c.setAttribute("aria-label", `Memory over ${N.toLocaleString("en-US")} events. The peak is ${size(total[highest])}, ${phaseAt(highest - 1)}.`);
    const eventAt = (e) => { const p = e.clientX - c.getBoundingClientRect().left, W = c.clientWidth - left; const a = first + (p - left) / W * (last - first + 1), n = (last - first + 1) / W;
      let m = Math.max(first, Math.min(last, Math.floor(a))); for (let i = m + 1; i < a + n && i <= last; ++i) if (total[i] > total[m]) m = i; return m; };
    const inside = (e) => Math.max(left, e.clientX - c.getBoundingClientRect().left);
    c.addEventListener("pointerdown", (e) => { drag = {from: inside(e), a: eventAt(e), to: null}; });
    c.addEventListener("pointermove", (e) => { cursor = eventAt(e); if (drag && e.buttons) drag.to = inside(e); showTip(e, describe(cursor)); say(); draw(); });
    c.addEventListener("pointerup", (e) => { const d = drag; drag = null; if (d && d.to != null && Math.abs(d.to - d.from) > 6) { const b = eventAt(e); show(Math.min(d.a, b), Math.max(d.a, b)); } else draw(); });
    c.addEventListener("pointerleave", () => { hideTip(); drag = null; draw(); });
    c.addEventListener("wheel", (e) => { if (!e.ctrlKey) return; e.preventDefault(); zoom(e.deltaY < 0 ? .8 : 1.25, eventAt(e)); }, {passive: false});
    c.addEventListener("keydown", (e) => {
      const n = Math.max(1, Math.round((last - first) / 100)) * (e.shiftKey ? 10 : 1);
      if (e.key === "ArrowRight") cursor = Math.min(N, cursor + n); else if (e.key === "ArrowLeft") cursor = Math.max(START, cursor - n);
      else if (e.key === "+" || e.key === "=") zoom(.5); else if (e.key === "-") zoom(2); else if (e.key === "Home" || e.key === "Escape") show(START, N); else return;
      e.preventDefault(); say(); draw();
    });
    s.append(tools, holder, read);
    const keys = make("ul", {class: "legend", "aria-label": "Colours and patterns"});
    legend(keys, null, () => { draw(); });
    s.append(keys);
    say();
    const worst = steps.find((m) => m.at < T.peak_at && T.peak_at <= m.end);
    if (worst) { first = worst.at; last = worst.end; }
    for (const [button, from, to] of buttons) button.setAttribute("aria-pressed", from === first && to === last);
    const rows = groups.map((g, k) => [g.name, size(parts[highest * K + k]), exact(parts[highest * K + k]), percent(parts[highest * K + k], total[highest])]).reverse();
    s.append(make("details", {}, make("summary", {}, "The peak in numbers"), table([["what"], ["at the peak", 1], ["exactly", 1], ["part", 1]], [...rows, ["all", size(total[highest]), exact(total[highest]), "100.0 %"]])));
    s.dataset.peak = total[highest];
    s.dataset.groups = JSON.stringify(groups.map((g, k) => [g.name, parts[highest * K + k]]));
  }

  // --- the peak as a tree

  // Categories under what people think of as one, in the order of the legend.
  function grouped(tree) {
    const of = new Map(groups.map((g, k) => [g.name, lookOf[k]]));
    if (!(tree.children || []).every((c) => of.has(c.name)) || groups.every((g) => g.name === g.group)) return tree;
    const children = looks.map((l, i) => {
      const members = tree.children.filter((c) => of.get(c.name) === i);
      return members.length === 1 ? {...members[0], name: l.name} : {name: l.name, bytes: members.reduce((a, c) => a + c.bytes, 0), children: members};
    });
    return {...tree, children: children.filter((c) => c.bytes)};
  }

  if (page.tree && page.tree.bytes) {
    const s = section("peak", "What is alive at the peak", page.kind !== "job" && page.kind !== "trace" ? "From the outermost frame to the place that allocated. Choose a row to look inside." :
      "By category, module, op and tensor. Identical layers are shown once: * stands for their numbers. Choose a box or a row to look inside.", false, "Peak");
    const crumbs = make("ol", {class: "crumbs", "aria-label": "Path"}), picture = make("div", {class: "icicle", "aria-hidden": "true"}), list = make("div");
    s.append(crumbs, picture, list);
    s.dataset.bytes = page.tree.bytes;
    const indexOf = new Map(looks.map((l, i) => [l.name, i]));
    const rows = 7, high = 1.7;
    let path = [grouped(page.tree)];
    // A box has the colour of what all of it is; of several things it has none.
    const only = (n) => indexOf.has(n.name) ? indexOf.get(n.name) : (n.children || []).map(only).reduce((a, b) => a === b ? a : null, n.children && n.children.length ? only(n.children[0]) : null);
    const groupOf = (nodes) => { for (const n of nodes.slice(1)) if (indexOf.has(n.name)) return indexOf.get(n.name); return nodes.length > 1 ? only(nodes[nodes.length - 1]) : null; };
    const name = (n) => n.repeats > 1 ? `${n.name} × ${n.repeats}` : n.name;
    function box(nodes, from, share, depth) {
      if (depth >= rows || share < .002) return;
      const n = nodes[nodes.length - 1], g = groupOf(nodes), e = make("div", {});
      e.style.cssText = `left:${100 * from}%;width:${100 * share}%;top:${depth * high}rem;` + (g == null ? "background:var(--hole);color:var(--ink)" : `background:${colour(g)};color:${ink(g)};filter:brightness(${dark() ? 1 - depth * .06 : 1 + depth * .04})`);
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
    const s = section("tensors", "Largest tensors at the peak", "Identical tensors of all layers share a row.", true, "Tensors");
    const rows = page.estimate.largest.map((t) => [size(t.bytes * t.count), t.count > 1 ? `${t.count} × ${size(t.bytes)}` : "", (groups.find((g) => g.name === t.category) || {group: t.category}).group, make("code", {}, t.shape), make("code", {}, t.module), make("code", {}, t.op)]);
    const columns = [["size", 1], ["each", 1], ["category"], ["shape and dtype", 0, 1], ["module", 0, 1], ["made by"]];
    s.append(table(columns, rows.slice(0, 12)));
    if (rows.length > 12) s.append(make("details", {}, make("summary", {}, `${rows.length - 12} more`), table(columns, rows.slice(12))));
  }

  // --- segments: memory as one strip, cut into lines

  if (page.segments) {
    const g = page.segments, s = section("segments", "Allocator segments", `At the peak the allocator holds ${size(g.reserved_bytes)} in ${g.count.toLocaleString("en-US")} segments; tensors use ${size(g.used_bytes)} of it. ` +
      `Of the ${size(g.free_bytes)} left, ${size(g.free_in_used_segments_bytes)} cannot go back to the device, because tensors share their segments; the largest free piece is ${size(g.largest_free_bytes)}.`, false, "Segments");
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
          paint(seg.blocks[i], seg.blocks[i + 1] < 0 ? -1 : lookOf[seg.blocks[i + 1]], seg.blocks[i + 1] < 0 ? `free: ${size(seg.blocks[i])} of a segment of ${size(seg.size)}` : `${size(seg.blocks[i])}, ${T.labels[seg.blocks[i + 2]]}; in a segment of ${size(seg.size)}`);
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
    const free = make("canvas", {width: 22, height: 14, "aria-hidden": "true"});
    redraws.push(() => { const x = free.getContext("2d"); x.fillStyle = fill(x, -1); x.fillRect(0, 0, 22, 14); });
    const keys = make("ul", {class: "legend", "aria-label": "Colours and patterns"}, make("li", {}, free, make("span", {}, "free")));
    const used = new Set();
    for (const seg of g.list) for (let i = 1; i < seg.blocks.length; i += 3) if (seg.blocks[i] >= 0) used.add(lookOf[seg.blocks[i]]);
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

  // --- predicted over measured: both over their own course, as parts of it

  if (page.measured) {
    const m = page.measured, s = section("measured", "Predicted and measured", `Measured: ${m.source}.`, false, "Measured");
    s.append(table([["memory"], ["predicted", 1], ["measured", 1], ["difference", 1], ["of measured", 1]], m.numbers.map((n) => {
      const ours = page.numbers.find((q) => q.name === n.name), d = ours ? ours.bytes - n.bytes : 0;
      return [n.name, ours ? size(ours.bytes) : "?", size(n.bytes), ours ? (d < 0 ? "−" : "+") + size(Math.abs(d)) : "?", ours && n.bytes ? (d < 0 ? "−" : "+") + (100 * Math.abs(d) / n.bytes).toFixed(1) + " %" : ""];
    })));
    if (m.slices.length) {
      const W = main.clientWidth > 700 ? 1000 : 420, H = 260, LEFT = 66, B = 26, most = Math.max(...m.slices, ...m.predicted_slices) * 1.06 || 1;
      const X = (i, n) => LEFT + i / n * (W - LEFT - 6), Y = (b) => H - B - b / most * (H - B - 6);
      const line = (all) => all.map((b, i) => `${X(i, all.length).toFixed(1)},${Y(b).toFixed(1)} ${X(i + 1, all.length).toFixed(1)},${Y(b).toFixed(1)}`).join(" ");
      const plot = svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", width: "100%", "aria-label": "Predicted and measured allocated memory over the run"});
      const unit = most > 4 * GiB ? GiB : MiB;
      for (const t of ticks(0, most / unit)) plot.append(svg("line", {x1: LEFT, x2: W, y1: Y(t * unit), y2: Y(t * unit), stroke: "var(--line)"}), svg("text", {x: LEFT - 6, y: Y(t * unit) + 4, "text-anchor": "end"}, +t.toFixed(3) + (unit === GiB ? " GiB" : " MiB")));
      plot.append(svg("polygon", {points: `${X(0, 1)},${Y(0)} ${line(m.slices)} ${X(1, 1)},${Y(0)}`, fill: "var(--hole)"}), svg("polyline", {points: line(m.slices), fill: "none", stroke: "var(--soft)", "stroke-width": 1.5}),
        svg("polyline", {points: line(m.predicted_slices), fill: "none", stroke: "var(--accent)", "stroke-width": 2}));
      plot.append(svg("text", {x: LEFT, y: H - 8}, "start"), svg("text", {x: W, y: H - 8, "text-anchor": "end"}, "end"));
      const key = (colour, text) => { const c = make("i", {class: "square"}); c.style.background = colour; return make("li", {}, c, text); };
      s.append(make("h3", {}, "Allocated memory over the run"), plot, make("ul", {class: "legend"}, key("var(--accent)", "predicted"), key("var(--hole)", "measured")),
        make("p", {class: "note"}, "Each from its own start to its own end: a recording that begins in the middle of the run, or has another number of steps, is stretched beside the prediction."));
    }
  }

  // --- levers: three as cards, the others folded

  if (page.what_if && page.what_if.levers) {
    const w = page.what_if, levers = w.levers.map((l, i) => ({...l, command: page.commands ? page.commands.levers[i] : l.flags}));
    const saves = levers.filter((l) => l.outcome === "saves"), rest = levers.filter((l) => l.outcome !== "saves");
    const state = page.verdict.state, short = state === "does not fit" || state === "tight";
    // What helps, disturbs and costs least comes first: the order of the plan's quick fixes where there is a plan.
    const kinds = ["same result", "different numerics", "different training"], verdicts = ["fits", "tight"];
    const fixes = page.plan ? page.plan.fixes.map((f) => f.flags) : [];
    const rank = (l) => [short ? (verdicts.indexOf(l.verdict) + 3) % 3 : 0, kinds.indexOf(l.kind), fixes.includes(l.flags) ? fixes.indexOf(l.flags) : 99];
    const order = (a, b) => { const x = rank(a), y = rank(b); for (let i = 0; i < x.length; ++i) if (x[i] !== y[i]) return x[i] - y[i]; return b.saving_bytes - a.saving_bytes; };
    const worth = saves.filter((l) => l.saving_bytes * 20 >= w.device_bytes), best = (worth.length > 2 ? worth : saves).slice().sort(order).slice(0, 3);
    const s = section("levers", short ? "What to change" : "What would save memory", "Each change alone, executed." + (short || !w.target ? "" : " It fits as it is: nothing needs to be changed."), true, "Changes");
    const cost = (l) => l.kind === "same result" ? l.cost : l.kind + "; " + l.cost;
    s.append(make("div", {class: "cards"}, ...best.map((l) => make("div", {class: "card"},
      make("b", {}, l.name), make("div", {class: "saved"}, "−" + size(l.saving_bytes)), make("div", {}, `then ${size(l.device_bytes)}`, ...(w.target ? [" ", pill(l.verdict)] : [])),
      make("div", {class: "note"}, cost(l)), make("code", {}, l.flags), copyButton(l.command, "Copy this command")))));
    const most = Math.max(1, ...saves.map((l) => l.saving_bytes)), others = saves.filter((l) => !best.includes(l));
    if (others.length) s.append(make("details", {}, make("summary", {}, others.length === 1 ? "1 other change" : `${others.length} other changes`), table([["change", 0, 1], ["saves", 1], [""], ["then needs", 1], ...(w.target ? [["verdict"]] : []), ["result"], ["cost", 0, 1], ["flags", 0, 1], [""]],
      others.map((l) => [l.name, size(l.saving_bytes), meter(l.saving_bytes, most), size(l.device_bytes), ...(w.target ? [pill(l.verdict)] : []), l.kind, l.cost, make("code", {}, l.flags), copyButton(l.command, "Copy")]))));
    if (!saves.length) s.append(make("p", {}, "No single change saves memory here."));
    if (rest.length) s.append(make("details", {}, make("summary", {}, `${rest.length} that do not help here`), table([["change", 0, 1], ["why", 0, 1]], rest.map((l) => [l.name, l.reason || (l.outcome === "takes more" ? `takes ${size(-l.saving_bytes)} more` : "saves less than 0.5 %")]))));
    if (w.left_out) s.append(make("p", {class: "note"}, `Left out (${w.left_out.why}): ${w.left_out.levers.join("; ")}.`));
  }

  // --- plan: the ladder and the front

  if (page.plan) {
    const p = page.plan, perSample = (r) => r.time && r.time.samples_per_second ? 1 / r.time.samples_per_second : null;
    const s = section("plan", "Plan for " + p.device, p.plan ? `The fastest recipe that fits${p.plan.kind === "same result" ? " with the same result" : ", with " + p.plan.kind}, of ${p.executed} that were executed.` :
      p.shortage ? `No allowed change makes it fit: it is at least ${size(p.shortage.missing_bytes)} short.` : "", false, "Plan");
    if (p.plan) {
      s.append(make("p", {class: "command"}, make("code", {}, p.plan.flags || "no changes"), p.plan.flags && page.commands && page.commands.plan ? copyButton(page.commands.plan, "Copy this command") : null));
      for (const a of p.alternatives) s.append(make("p", {class: "note"}, `Faster, with ${a.kind}: `, make("code", {}, a.flags), ` ${size(a.device_peak.bytes)}, ${seconds(perSample(a))} per sample.`));
    }
    const both = make("div", {class: "two"});
    s.append(both);
    const all = p.front.filter((r) => perSample(r));
    // What needs far more than there is would press the rest into a corner.
    const reach = p.limit_bytes ? 1.5 * p.limit_bytes : Infinity, front = all.filter((r) => r.device_peak.bytes <= reach), beyond = all.length - front.length;
    if (front.length > 1) {
      const W = 520, H = 250, LEFT = 66, B = 34, kinds = ["same result", "different numerics", "different training"];
      const planned = p.plan ? kinds.indexOf(p.plan.kind) : 0, marked = [p.as_is, p.plan].filter((r) => r && perSample(r) && r.device_peak.bytes <= reach);
      const fx = [...front, ...marked].map((r) => r.device_peak.bytes), fy = [...front, ...marked].map(perSample);
      const x0 = Math.min(...fx) * .9, x1 = Math.max(...fx, p.limit_bytes || 0) * 1.04, y1 = Math.max(...fy) * 1.08;
      const X = (b) => LEFT + (b - x0) / (x1 - x0) * (W - LEFT - 8), Y = (t) => H - B - t / y1 * (H - B - 8);
      const plot = svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Device memory against seconds per sample; a table follows", width: "100%"});
      for (const t of ticks(0, y1)) plot.append(svg("line", {x1: LEFT, x2: W - 8, y1: Y(t), y2: Y(t), stroke: "var(--line)"}), svg("text", {x: LEFT - 6, y: Y(t) + 4, "text-anchor": "end"}, rounded(t, y1)));
      for (const b of ticks(x0 / GiB, x1 / GiB)) plot.append(svg("line", {x1: X(b * GiB), x2: X(b * GiB), y1: H - B, y2: H - B + 4, stroke: "var(--soft)"}), svg("text", {x: X(b * GiB), y: H - 14, "text-anchor": "middle"}, +b.toFixed(3) + " GiB"));
      if (p.limit_bytes >= x0 && p.limit_bytes <= x1) plot.append(svg("line", {x1: X(p.limit_bytes), x2: X(p.limit_bytes), y1: 4, y2: H - B, stroke: "var(--ink)", "stroke-dasharray": "5 4", "stroke-width": 1.5}), svg("text", {x: X(p.limit_bytes) - 5, y: 14, "text-anchor": "end"}, "limit"));
      const same = front.filter((r) => kinds.indexOf(r.kind) <= planned), more = front.filter((r) => kinds.indexOf(r.kind) > planned);
      plot.append(svg("polyline", {points: same.map((r) => `${X(r.device_peak.bytes)},${Y(perSample(r))}`).join(" "), fill: "none", stroke: "var(--accent)", "stroke-opacity": .5}));
      const dot = (r, filled) => plot.append(svg("circle", {cx: X(r.device_peak.bytes), cy: Y(perSample(r)), r: 4, fill: filled ? "var(--accent)" : "var(--card)", stroke: filled ? "none" : "var(--soft)", "stroke-width": 1.5}, svg("title", {}, `${size(r.device_peak.bytes)}, ${seconds(perSample(r))} per sample, ${r.kind}: ${r.flags || "as it is"}`)));
      for (const r of more) dot(r, false);
      for (const r of same) dot(r, true);
      const diamond = (r, text, below) => { const x = X(r.device_peak.bytes), y = Y(perSample(r)); plot.append(svg("path", {d: `M${x - 7} ${y}l7 -7l7 7l-7 7z`, fill: "var(--card)", stroke: "var(--ink)", "stroke-width": 2}), svg("text", {x: Math.min(x, W - 40), y: y + (below ? 22 : -12), "text-anchor": "middle", style: "fill:var(--ink);font-weight:600"}, text)); };
      if (marked.includes(p.as_is)) diamond(p.as_is, "as it is", !p.plan || perSample(p.as_is) < perSample(p.plan));
      if (marked.includes(p.plan)) diamond(p.plan, "plan", perSample(p.as_is) >= perSample(p.plan));
      both.append(make("div", {}, make("h3", {}, "Memory against time per sample"), plot,
        make("p", {class: "note"}, "Filled: " + kinds.slice(0, planned + 1).join(" or ") + ", as the plan. " + (more.length ? `Hollow: smaller or faster, but with ${kinds.slice(planned + 1).join(" or ")}, so not the plan. ` : "") +
          "No recipe of its kind is both smaller and faster. " + (beyond ? `${beyond} that need more than 1.5 times the limit are not drawn. ` : "") + "Changes that are listed above and missing here, such as torch.compile, are never planned. Times are a roofline estimate, good for ranking."),
        make("details", {}, make("summary", {}, "As a table"), table([["needs", 1], ["per sample", 1], ["result"], ["flags", 0, 1]], all.map((r) => [size(r.device_peak.bytes), seconds(perSample(r)), r.kind, make("code", {}, r.flags || "as it is")])))));
    }
    const ladder = (rows, title) => make("div", {}, make("h3", {}, title), table([["step", 0, 1], ["needs", 1], ["share", 1], ["batch", 1], ["per sample", 1]],
      rows.map((r) => [r.name, size(r.device_peak.bytes), (100 * r.share).toFixed(0) + " %", r.batch + (r.accumulation > 1 ? " × " + r.accumulation : ""), seconds(perSample(r))])));
    const right = make("div", {});
    if (p.ladder.length) right.append(ladder(p.ladder, "The same recipe, closer to the limit"));
    if (p.after_oom.length) right.append(ladder(p.after_oom, "If it still runs out of memory, in this order"));
    both.append(right);
    if (p.batch) s.append(make("p", {}, `Largest batch: ${p.batch.maximum}; recommended: at most ${p.batch.recommended}${p.batch.note ? "; " + p.batch.note : ""}.`));
    const one = Object.entries(p.sensitivity || {});
    if (one.length) s.append(make("p", {}, "Allocated memory per extra " + one.map(([k, v]) => `${k}: ${size(v)}`).join(", ") + "."));
  }

  // --- devices

  if (page.fits.length) {
    const s = section("devices", "Devices it fits", null, true, "Devices");
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
    if (rest.length) s.append(make("p", {class: "note"}, `It fits ${page.fits.filter((f) => f.verdict === "fits").length} of ${page.fits.length} devices. The list shows those around the edge.`), make("div", {class: "tools"}, search, button));
    s.append(holder);
    draw();
  }

  // --- where it comes from

  if (page.origins.length) {
    const s = section("origins", "Where each value comes from", null, true, "Origins"), rows = (part) => page.origins.filter((o) => o.part === part).map((o) => [make("code", {}, o.name), make("code", {}, o.value), o.origin]);
    const columns = [["setting"], ["value", 0, 1], ["origin", 0, 1]];
    const both = make("div", {class: "two"});
    both.append(make("div", {}, make("h3", {}, "The run"), table(columns, rows("run"))), make("div", {}, make("h3", {}, "The model"), table(columns, rows("model"))));
    s.append(both);
    if (page.findings.length) s.append(make("h3", {}, "Settings and their effect"), table([["effect"], ["setting", 0, 1], ["what happens", 0, 1], ["where", 0, 1]], page.findings.map((f) => [f.effect, make("code", {}, f.setting), f.what + (f.why ? " (" + f.why + ")" : ""), f.source])));
  }
  if (page.assumptions.length || page.not_modelled.length) {
    const s = section("sure", page.kind === "job" ? "How sure" : "Notes"), list = (items) => make("ul", {class: "plain"}, ...items.map((t) => make("li", {}, t)));
    if (page.assumptions.length) s.append(page.kind === "job" ? make("h3", {}, "Assumed") : "", list(page.assumptions));
    if (page.not_modelled.length) s.append(make("h3", {}, "Not included"), list(page.not_modelled));
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
