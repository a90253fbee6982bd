"""The mode itself: values, symbols, counts, moved modules, and that nothing of it stays."""
import json
from typing import Any

import pytest

torch = pytest.importorskip('torch', '2.6', reason='captures need PyTorch 2.6 or newer')
import plimsoll  # noqa: E402
from plimsoll.capture import formulas  # noqa: E402
from traces import body, of  # noqa: E402
F = torch.nn.functional


def lines_of(c: Any) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(line)) for line in c.lines()]


class Model(torch.nn.Module):
    """Attention, a norm and a loss: enough that lengths enter in squares and quotients."""
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 48)
        self.qkv = torch.nn.Linear(48, 144)
        self.norm = torch.nn.LayerNorm(48)
        self.head = torch.nn.Linear(48, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        h = self.embedding(x)
        q, k, v = (t.unflatten(2, (4, 12)).transpose(1, 2) for t in self.qkv(h).chunk(3, 2))
        h = self.norm(h + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return F.cross_entropy(self.head(h)[:, :-1].flatten(0, 1), F.pad(x, (0, 1))[:, 1:-1].flatten())


def train(batch: int, seq: int, steps: int = 3) -> None:
    net = Model().cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        x = torch.randint(0, 50, (batch, seq)).to('cuda')
        loss = net(x)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


def captured(batch: int, seq: int, **options: Any) -> list[dict[str, Any]]:
    with plimsoll.capture(**options) as c:
        train(batch, seq)
    assert c.finished and c.steps == 2
    return lines_of(c)


def test_formulas_give_every_event_of_a_capture_at_another_size() -> None:
    symbolic = captured(6, 160, sizes={'batch': 6, 'seq': 160})
    assert [s['symbol'] for s in of(symbolic, 'symbol')] == ['batch', 'seq']
    if of(symbolic, 'pin') and tuple(map(int, torch.__version__.split('.')[:2])) < (2, 13):
        pytest.skip(f'torch {torch.__version__} reads the sizes as numbers here, and the pins say so')
    assert not of(symbolic, 'pin')
    for batch, seq in ((6, 160), (2, 96), (11, 224), (3, 77)):
        assert body(symbolic, batch=batch, seq=seq) == body(captured(batch, seq, find_sizes=False)), (batch, seq)
        assert all(formulas.holds(g['guard'], dict(batch=batch, seq=seq)) for g in of(symbolic, 'guard'))


def test_sizes_are_found_in_the_first_batch() -> None:
    lines = captured(6, 160)
    assert {s['symbol']: s['at'] for s in of(lines, 'symbol')} == {'batch': 6, 'seq': 160}
    assert any('pow(seq,2)' in f['bytes'] or 'cdiv(seq,32)' in f['bytes'] for f in of(lines, 'formula') if 'alloc' not in f)


def test_a_loop_over_pieces_holds_only_where_their_number_is_the_same() -> None:
    def chunked(batch: int, seq: int) -> None:
        w = torch.nn.Parameter(torch.randn(30, 30).cuda())
        optimizer = torch.optim.SGD([w], 0.1)
        for _ in range(3):
            x = torch.randn(batch, seq, 30).to('cuda').flatten(0, 1)
            sum((x[i:i + 256] @ w).sum() for i in range(0, x.shape[0], 256)).backward()
            optimizer.step()
    with plimsoll.capture(sizes={'batch': 6, 'seq': 160}) as c:
        chunked(6, 160)
    conditions = [line.get('guard') or line['pin'] for line in lines_of(c) if 'guard' in line or 'pin' in line]
    places = {line['where'].split(':')[0] for line in lines_of(c) if 'guard' in line or 'pin' in line}
    assert {p.rsplit('/', 1)[-1] for p in places} == {'test_capture.py'}
    assert all(formulas.holds(t, dict(batch=6, seq=160)) for t in conditions)
    assert not all(formulas.holds(t, dict(batch=4, seq=96)) for t in conditions)


def test_counts_that_the_data_decide_are_always_named() -> None:
    with plimsoll.capture(sizes={'batch': 6, 'seq': 40}) as c:
        w = torch.nn.Parameter(torch.randn(30, 30).cuda())
        optimizer = torch.optim.SGD([w], 0.1)
        for _ in range(3):
            x = torch.randn(6, 40, 30).to('cuda')
            known = torch.arange(40).to('cuda') < 7
            one = torch.arange(40).to('cuda') < 1
            h = x @ w
            (h[h > 0].sum() + h[:, known].sum() + h[:, one].sum()).backward()
            optimizer.step()
    counts = of(lines_of(c), 'count')[:3]
    assert [(n['count'], n['at'], n['most'], n['known']) for n in counts] == [
        ('n1', 3600, counts[0]['most'], False), ('n2', 7, 'seq', True), ('n3', 1, 'seq', True)]
    assert formulas.evaluate(counts[0]['most'], dict(batch=6, seq=40)) == 7200
    assert all('test_capture.py:' in n['where'] for n in counts)
    assert any('n1' in f['bytes'] for f in of(lines_of(c), 'formula') if 'alloc' not in f)


@pytest.mark.parametrize('masked', (False, True))
def test_a_program_goes_the_way_that_its_mask_says(masked: bool) -> None:
    taken = []
    with plimsoll.capture(find_sizes=False) as c:
        mask = torch.ones(6, 40, dtype=torch.long)
        mask[0, 30:] = 0 if masked else 1
        on_device = mask.to('cuda')
        positions = on_device.cumsum(-1) - 1
        taken = [bool((on_device == 0).any()), int(positions.max()), bool(on_device.all())]
    assert taken == [masked, 39, not masked]
    assert all(r['known'] for r in of(lines_of(c), 'read'))


def test_a_value_is_unknown_once_something_unknown_was_written() -> None:
    with plimsoll.capture(find_sizes=False) as c:
        x = torch.zeros(4, dtype=torch.long).to('cuda')
        x.add_(torch.randn(4, device='cuda').long())
        x.sum().item()
    assert [r['known'] for r in of(lines_of(c), 'read')] == [False]


def test_an_optimizer_made_before_the_model_moved_still_steps_and_ties_hold() -> None:
    with plimsoll.capture(find_sizes=False) as c:
        net = Model()
        net.embedding.weight.mark = 'kept'  # type: ignore[attr-defined]
        optimizer = torch.optim.AdamW(net.parameters())
        before = [id(p) for p in net.parameters()]
        net.cuda()
        assert [id(p) for p in net.parameters()] == before and net.head.weight is net.embedding.weight
        assert net.embedding.weight.mark == 'kept' and net.embedding.weight.device.type == 'cuda'
        for _ in range(3):
            net(torch.randint(0, 50, (6, 40)).cuda()).backward()
            optimizer.step()
            optimizer.zero_grad()
    lines = lines_of(c)
    weights = 4 * (50 * 48 + 48 * 144 + 144 + 48 + 48)
    kinds = {b.number: b.label for b in c.ledger.births}
    assert sum(a['bytes'] for a in of(lines, 'alloc') if kinds[a['alloc']] == 'parameter') == weights
    assert sum(a['bytes'] for a in of(lines, 'alloc') if kinds[a['alloc']] == 'optimizer state') == 2 * weights


def test_nothing_of_a_capture_stays() -> None:
    before = (torch.cuda.is_available(), torch.save, torch.tensor, torch.nn.Module._apply, F.scaled_dot_product_attention, torch.Tensor.data, torch.compile,
              torch.autograd._engine_run_backward)
    with pytest.raises(ZeroDivisionError):
        with plimsoll.capture(gpu='rtx-3090'):
            assert torch.cuda.is_available() and torch.cuda.get_device_properties(0).total_memory > 20 << 30
            assert torch.cuda.get_device_capability() == (8, 6)
            1 / 0
    after = (torch.cuda.is_available(), torch.save, torch.tensor, torch.nn.Module._apply, F.scaled_dot_product_attention, torch.Tensor.data, torch.compile,
             torch.autograd._engine_run_backward)
    assert before == after
    x = torch.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2, 2]


def test_a_large_model_needs_no_memory_of_the_host() -> None:
    import resource
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with plimsoll.capture(find_sizes=False) as c:
        net = torch.nn.Linear(100_000, 40_000, bias=False).cuda()  # 16 GB
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(3):
            net(torch.randn(6, 100_000, device='cuda')).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert c.steps == 2 and max(b.bytes for b in c.ledger.births) == 16_000_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


def test_an_average_of_the_weights_is_called_one() -> None:
    with plimsoll.capture(find_sizes=False) as c:
        net = Model().cuda()
        average = [p.detach().clone() for p in net.parameters()]
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(3):
            net(torch.randint(0, 50, (6, 40)).cuda()).backward()
            optimizer.step()
            with torch.no_grad():
                for s, p in zip(average, net.parameters()):
                    s.lerp_(p, 0.1)
    assert sum(b.bytes for b in c.ledger.births if b.label == 'ema') == 4 * (50 * 48 + 48 * 144 + 144 + 48 + 48)


@pytest.mark.parametrize('reentrant', (False, True))
def test_checkpointing_computes_again_in_backward(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    def saved(again: bool) -> int:
        with plimsoll.capture(find_sizes=False) as c:
            net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]).cuda()
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for _ in range(3):
                x = torch.randn(1000, 64).cuda().requires_grad_()
                (checkpoint(net, x, use_reentrant=reentrant) if again else net(x)).sum().backward()
                optimizer.step()
        births = [b for b in c.ledger.births if b.op == 'aten.addmm']
        return sum(b.phase == 'backward' for b in births)


def test_a_list_of_indices_is_a_tensor_on_the_device() -> None:
    with plimsoll.capture(find_sizes=False) as c:
        x = torch.arange(12).reshape(3, 4).to('cuda')
        last = x[:, [-1, 0]]
        assert last.shape == (3, 2) and last.tolist() == [[3, 0], [7, 4], [11, 8]]
    assert 16 in [b.bytes for b in c.ledger.births]
