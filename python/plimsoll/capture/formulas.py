"""Sizes as formulas in the names that a person gave: the text that trace files hold, and its value at other sizes.

Grammar: integers, names, + - *, parentheses, pow(a,n), fdiv(a,b) floor division, cdiv(a,b) ceiling division, mod(a,b),
min(a,b), max(a,b). Guards are comparisons of two formulas joined by `and` and `or`.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from functools import reduce
from typing import Any

_RELATIONS = {'Equality': '=', 'Unequality': '!=', 'LessThan': '<=', 'StrictLessThan': '<', 'GreaterThan': '>=', 'StrictGreaterThan': '>'}
_DIVISIONS = {'FloorDiv': 'fdiv', 'CleanDiv': 'fdiv', 'Mod': 'mod', 'PythonMod': 'mod', 'CeilDiv': 'cdiv'}


class Inexpressible(ValueError):
    """The grammar has no word for this expression."""


def _nested(word: str, parts: list[str]) -> str:
    return reduce(lambda a, b: f'{word}({a},{b})', parts)


def _sum(expression: Any, names: Mapping[str, str]) -> str:
    """Positive terms first: the grammar has no unary minus."""
    terms = [(t.could_extract_minus_sign(), t) for t in expression.as_ordered_terms()]
    text = ''
    for negative, term in sorted(terms, key=lambda t: t[0]):
        term = -term if negative else term
        part = formula(term, names)
        if term.is_Add:
            part = f'({part})'
        text += ('-' if text else '0-') + part if negative else ('+' if text else '') + part
    return text


def _product(expression: Any, names: Mapping[str, str]) -> str:
    numerator, denominator = expression.as_numer_denom()
    if denominator != 1:
        return f'fdiv({formula(numerator, names)},{formula(denominator, names)})'  # a product of sizes is whole: so is the quotient
    if expression.could_extract_minus_sign():
        return f'0-{_factors(-expression, names)}'
    return _factors(expression, names)


def _factors(expression: Any, names: Mapping[str, str]) -> str:
    parts = []
    order = {name: i for i, name in enumerate(names.values())}
    factors = list(expression.as_ordered_factors()) if expression.is_Mul else [expression]
    for factor in sorted(factors, key=lambda f: order.get(names.get(str(f), ''), len(order)) if f.is_Symbol else -1 if f.is_Integer else len(order)):
        part = formula(factor, names)
        parts.append(f'({part})' if factor.is_Add or part.startswith('0-') else part)
    return '*'.join(parts)


def _rounded(argument: Any, word: str, names: Mapping[str, str]) -> str:
    if argument.is_integer and type(argument).__name__ != 'IntTrueDiv':
        return formula(argument, names)
    if type(argument).__name__ == 'IntTrueDiv':
        a, b = argument.args
        return f'{word}({formula(a, names)},{formula(b, names)})'
    numerator, denominator = argument.as_numer_denom()
    if denominator == 1:
        raise Inexpressible(str(argument))
    return f'{word}({formula(numerator, names)},{formula(denominator, names)})'


def formula(expression: Any, names: Mapping[str, str]) -> str:
    """`names`: of each symbol of PyTorch's the name that a person knows."""
    if isinstance(expression, int):
        return str(expression) if expression >= 0 else f'0-{-expression}'
    kind, args = type(expression).__name__, expression.args
    if expression.is_Integer:
        return formula(int(expression), names)
    if expression.is_Symbol:
        if expression.name not in names:
            raise Inexpressible(f'{expression.name} has no name')
        return names[expression.name]
    if expression.is_Add:
        return _sum(expression, names)
    if expression.is_Mul:
        return _product(expression, names)
    if kind in _DIVISIONS:
        return f'{_DIVISIONS[kind]}({formula(args[0], names)},{formula(args[1], names)})'
    if kind in ('Max', 'Min'):
        return _nested(kind.lower(), sorted(formula(a, names) for a in args))
    if kind in ('Pow', 'PowByNatural') and args[1].is_Integer and int(args[1]) >= 0:
        return f'pow({formula(args[0], names)},{int(args[1])})'
    if kind == 'ModularIndexing':
        base, divisor, modulus = (formula(a, names) for a in args)
        return f'mod(fdiv({base},{divisor}),{modulus})'
    if kind in ('CeilToInt', 'ceiling'):
        return _rounded(args[0], 'cdiv', names)
    if kind in ('FloorToInt', 'TruncToInt', 'floor', 'Trunc'):
        return _rounded(args[0], 'fdiv', names)
    if kind in ('Identity', 'ToFloat') and len(args) == 1:
        return formula(args[0], names)
    raise Inexpressible(f'{kind}: {expression}')


def guard(expression: Any, names: Mapping[str, str]) -> str:
    kind = type(expression).__name__
    if kind in _RELATIONS:
        return f'{formula(expression.args[0], names)} {_RELATIONS[kind]} {formula(expression.args[1], names)}'
    if kind in ('And', 'Or'):
        parts = sorted(guard(a, names) for a in expression.args)
        return f' {kind.lower()} '.join(f'({p})' if kind == 'And' and ' or ' in p else p for p in parts)
    if kind == 'Not':
        inner = expression.args[0]
        if hasattr(inner, 'negated'):
            return guard(inner.negated, names)
        return guard(inner.func(*inner.args, evaluate=True).simplify().negated, names)
    raise Inexpressible(f'{kind}: {expression}')


_WORDS: dict[str, Any] = {'pow': pow, 'fdiv': lambda a, b: a // b, 'cdiv': lambda a, b: -(-a // b), 'mod': lambda a, b: a % b, 'min': min, 'max': max,
                          '__builtins__': {}}


def evaluate(text: str | int, values: Mapping[str, int]) -> int:
    return int(eval(str(text), _WORDS, dict(values)))  # no builtins: only names and arithmetic


def holds(text: str, values: Mapping[str, int]) -> bool:
    return bool(eval(re.sub(r'(?<![<>!=])=(?!=)', '==', text), _WORDS, dict(values)))
