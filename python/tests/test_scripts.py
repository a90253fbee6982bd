"""Ordinary scripts, unchanged: they run to their step, and what was skipped, read and assumed is said with its line."""
from typing import Any

import pytest

pytest.importorskip('torch', '2.6', reason='captures need PyTorch 2.6 or newer')
from traces import of  # noqa: E402

MODEL = '''
import torch
net = torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
'''


def test_a_script_with_all_that_surrounds_training(script: Any) -> None:
    code, lines, said = script(MODEL + '''
from torch.utils.data import DataLoader, TensorDataset
net = torch.compile(net.cuda())
opt = torch.optim.AdamW(net.parameters())
schedule = torch.optim.lr_scheduler.StepLR(opt, 1)
scaler = torch.amp.GradScaler('cuda')
data = DataLoader(TensorDataset(torch.randn(64, 40), torch.arange(64) % 10), batch_size=6, num_workers=2, pin_memory=True, persistent_workers=True)
try:
    for epoch in range(100):
        for x, y in data:
            with torch.autocast('cuda', torch.float16):
                loss = torch.nn.functional.cross_entropy(net(x.cuda(non_blocking=True)), y.cuda())
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            schedule.step()
            print(f'{loss.item():.2f} {loss:.3f}', torch.cuda.get_device_name(), y.cuda().tolist()[:2])
            torch.save(net.state_dict(), 'last.pt')
except Exception as e:
    print('swallowed', e)
finally:
    print('closed')
''')
    assert code == 0, said
    assert 'closed' in said and 'swallowed' not in said and 'GeForce RTX 4090' in said and '[0, 1]' in said
    assert lines[0]['plimsoll_trace'] == 2 and lines[0]['steps'] == 2 and lines[0]['device'] == 'rtx-4090' and lines[0]['script'] == 'train.py'
    assert {'skipped': 'torch.save', 'where': 'train.py:22'} in lines
    assert {'read': 'train.py:21', 'dtype': 'float32', 'value': 1.0, 'known': False} in lines
    assert any(r['known'] and r['dtype'] == 'int64' for r in of(lines, 'read'))
    notes = ' '.join(f"{n['where']} {n['note']}" for n in of(lines, 'note'))
    assert 'train.py:6 torch.compile' in notes and 'train.py:10 DataLoader(num_workers=2)' in notes
    assert len(of(lines, 'step')) == 2


def test_an_error_of_the_script_keeps_its_own_traceback(script: Any) -> None:
    code, lines, said = script(MODEL + '''
def wrong():
    return net.cuda()(torch.randn(6, 41, device='cuda'))
wrong()
''')
    assert code == 1 and not lines
    assert 'train.py", line 6, in wrong' in said and 'RuntimeError' in said and 'plimsoll/capture' not in said


def test_a_loop_that_waits_for_a_value_ends_with_its_line(script: Any) -> None:
    code, _, said = script(MODEL + '''
loss = net.cuda()(torch.randn(6, 40).cuda()).sum()
while loss.item() > 0.5: pass
''')
    assert code == 2
    assert 'train.py:6 read a float32 from the device 10,000 times without a step' in said and '--value train.py:6=' in said


def test_a_value_that_is_given_is_taken(script: Any) -> None:
    code, lines, said = script(MODEL + '''
net.cuda(); opt = torch.optim.SGD(net.parameters(), 0.1)
loss = net(torch.randn(6, 40).cuda()).sum()
while loss.item() > 0.5: pass
loss.backward(); opt.step()
''', '--value', 'train.py:7=0.25')
    assert code == 0, said
    assert {'read': 'train.py:7', 'dtype': 'float32', 'value': 0.25, 'known': False} in lines


def test_without_a_step_nothing_is_written(script: Any) -> None:
    code, lines, said = script(MODEL + 'net.cuda()(torch.randn(6, 40).cuda())\n')
    assert code == 1 and not lines and 'no optimizer stepped' in said


def test_wrong_questions_are_refused_with_a_way_out(script: Any) -> None:
    assert 'two sizes are both 8' in script(MODEL, '--size', 'batch=8', '--size', 'seq=8')[2]
    assert 'no card is called gtx-9999' in script(MODEL, '--gpu', 'gtx-9999')[2]
    assert 'NAME=NUMBER' in script(MODEL, '--size', 'batch')[2]


KERNEL = MODEL + '''
library = torch.library.Library('acme', 'DEF')
library.define('fwd(Tensor x, Tensor w) -> (Tensor, Tensor)')
library.impl('fwd', lambda x, w: (torch.empty_like(x), x.new_empty(x.shape[0])), 'CUDA')
net.cuda(); opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(9):
    h = net(torch.randn(6, 40).cuda())
    with torch.no_grad(): torch.ops.acme.fwd(h, h)
    h.sum().backward(); opt.step()
'''


def test_a_kernel_without_a_rule_stops_with_its_name_and_an_example(script: Any) -> None:
    code, _, said = script(KERNEL)
    assert code == 2
    assert 'train.py:11: acme::fwd has no size rule' in said and "size_rule('acme::fwd', rule)" in said


def test_a_rule_of_the_users_is_used(script: Any, tmp_path: Any) -> None:
    (tmp_path / 'rules.py').write_text('''import torch
size_rule('acme::fwd', lambda x, w: (torch.empty_like(x), x.new_empty(x.shape[0])))
''')
    code, lines, said = script(KERNEL, '--rules', str(tmp_path / 'rules.py'), '--fixed')
    assert code == 0, said
    assert [a['bytes'] for a in of(lines, 'alloc') if a['op'] == 'acme.fwd'] == [240, 24, 240, 24]
