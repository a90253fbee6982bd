"""The text of formulas, and its value."""
import itertools

import pytest

from plimsoll.capture import formulas

sympy = pytest.importorskip('sympy', reason='sympy comes with PyTorch, which is missing')
B, S = sympy.symbols('s0 s1', integer=True, positive=True)
NAMES = {'s0': 'batch', 's1': 'seq'}


def same(expression: object, text: str) -> None:
    assert formulas.formula(expression, NAMES) == text
    for b, s in itertools.product((2, 3, 16), (5, 96, 1000)):
        assert formulas.evaluate(text, {'batch': b, 'seq': s}) == int(sympy.sympify(expression).subs({B: b, S: s}))


def test_sums_and_products_are_written_with_the_names_of_a_person() -> None:
    same(3072 * B * S, '3072*batch*seq')
    same(4 * B * S**2 + 12, '4*batch*pow(seq,2)+12')
    same(B * S - 1, 'batch*seq-1')


def test_a_sum_that_begins_with_minus_needs_no_unary_minus() -> None:
    assert not formulas.formula(-3 * B - 5, NAMES).startswith('-')
    same(-3 * B - 5, '0-3*batch-5')


def test_divisions_round_as_pytorch_rounds_them() -> None:
    pytest.importorskip('torch', '2.6', reason='captures need PyTorch 2.6 or newer')
    from torch.utils._sympy.functions import CeilToInt, FloorDiv, IntTrueDiv, Mod
    same(32 * CeilToInt(IntTrueDiv(S, 32)), '32*cdiv(seq,32)')
    same(FloorDiv(S - 1, 2) + 1, 'fdiv(seq-1,2)+1')
    same(Mod(S, 7), 'mod(seq,7)')
    same(sympy.Max(B, S), 'max(batch,seq)')


def test_what_has_no_word_is_refused_and_not_guessed() -> None:
    with pytest.raises(formulas.Inexpressible, match='sin'):
        formulas.formula(sympy.sin(B), NAMES)


def test_guards_hold_or_not_at_other_sizes() -> None:
    text = formulas.guard(sympy.And(B * S < 1024, sympy.Or(sympy.Ne(B, 3), S >= 100)), NAMES)
    assert formulas.holds(text, {'batch': 4, 'seq': 50})
    assert not formulas.holds(text, {'batch': 3, 'seq': 50})
    assert not formulas.holds(text, {'batch': 4, 'seq': 256})
    assert formulas.holds('batch*seq = 960', {'batch': 6, 'seq': 160})
