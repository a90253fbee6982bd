"""Batch, length and other named sizes as symbols: where they enter, what was assumed of them, how a count becomes one.

PyTorch's ShapeEnv does the algebra. A symbol lies between 2 and 2^32; a condition on symbols that a program decided is a
guard, one that fixes their value a pin. Both are kept with the line that asked.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import formulas
from .notes import Count, Notes
from .places import Places

SMALLEST, LARGEST = 2, 1 << 32


class Sizes:
    """Without names every size is a number and nothing of this costs anything."""

    def __init__(self, wanted: dict[str, int], find: bool, places: Places, notes: Notes) -> None:
        self.named = dict(wanted)     # name -> value
        self._find = find and not wanted
        self._places, self._notes = places, notes
        self._guards: list[tuple[Any, str]] = []
        self._pins: list[tuple[Any, str]] = []
        self._ints: dict[int, Any] = {}
        self._counts: dict[str, tuple[str, int]] = {}  # symbol -> name, value
        self._bounded: set[Any] = set()
        self._expanded: dict[Any, Any] = {}
        self._hints: dict[Any, int] = {}
        self._sources = 0
        self.env: Any = self._make_env() if wanted or find else None

    def _make_env(self) -> Any:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv
        sizes = self

        class Env(ShapeEnv):
            def _set_replacement(self, a: Any, tgt: Any, msg: str) -> None:
                if getattr(tgt, 'is_number', False):  # keep the formula, and say that it holds here only
                    import sympy
                    sizes._pins.append((sympy.Eq(a, tgt, evaluate=False), sizes._places.here()))
                else:
                    super()._set_replacement(a, tgt, msg)

        class Guards(list):  # type: ignore[type-arg]
            def append(self, item: Any) -> None:
                sizes._guards.append((item.expr, sizes._places.here()))
                super().append(item)

        env = Env(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True, specialize_zero_one=True, duck_shape=True)
        env.guards = Guards()
        return env

    # ---- values
    def values(self) -> dict[Any, int]:
        known = self.env.backed_var_to_val if hasattr(self.env, 'backed_var_to_val') else self.env.var_to_val
        return {symbol: int(value) for symbol, value in known.items()}

    def amount(self, n: Any) -> Any:
        """A number, or the expanded expression of a SymInt."""
        if type(n) is int or not isinstance(n, torch.SymInt):
            return int(n)
        e = n.node.expr
        if e not in self._expanded:
            import sympy
            r = sympy.expand(e)
            self._expanded[e] = int(r) if r.is_Integer else r
        return self._expanded[e]

    def hint(self, amount: Any) -> int:
        """The value at the sizes that were captured."""
        if isinstance(amount, torch.SymInt):
            amount = self.amount(amount)
        if type(amount) is int:
            return amount
        if amount not in self._hints:
            self._hints[amount] = int(amount.xreplace(self.values()))
        return self._hints[amount]

    def same(self, a: Any, b: Any) -> bool:
        """Equal as written, or at three points: floor divisions have no canonical form."""
        a, b = self.amount(a) if isinstance(a, torch.SymInt) else a, self.amount(b) if isinstance(b, torch.SymInt) else b
        if type(a) is int and type(b) is int or a == b:
            return bool(a == b)
        import sympy
        values = self.values()
        for more in (0, 16, 112):
            at = {s: v + more for s, v in values.items()}
            if int(sympy.sympify(a).xreplace(at)) != int(sympy.sympify(b).xreplace(at)):
                return False
        return True

    # ---- where symbols enter
    def find(self, shape: Any, dtype: torch.dtype, where: str) -> None:
        """Names the sizes of the first batch that comes to the device, when none were given."""
        if not self._find or self.env is None:
            return
        dims = [int(d) for d in shape]
        if dtype.is_floating_point and len(dims) >= 3:
            names = ['batch']
        elif not dtype.is_floating_point and dtype is not torch.bool and len(dims) == 2:
            names = ['batch', 'seq']
        else:
            return
        self._find = False
        for name, value in zip(names, dims):
            if value < SMALLEST or dims.count(value) > 1:
                self._notes.note(f'{name} is {value} in the first batch and stays a number: give sizes of at least 2 that differ, or --size {name}=N', where)
            else:
                self.named[name] = value
        if self.named:
            self._notes.note('sizes found in the first batch: ' + ', '.join(f'{n}={v}' for n, v in self.named.items()), where)

    def wants(self, shape: Any) -> bool:
        return bool(self.env is not None and self.named and any(type(s) is int and s in self.named.values() for s in shape))

    def _source(self, text: str) -> Any:
        from torch._dynamo.source import ConstantSource
        self._sources += 1
        return ConstantSource(f'{text}{self._sources}')

    def batch(self, tensor: torch.Tensor, mode: Any) -> torch.Tensor:
        """A host tensor on its way to the device: its dimensions of a named size become symbols."""
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext
        named = set(self.named.values())
        context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DUCK if int(s) in named else DimDynamic.STATIC for s in tensor.shape])
        result: torch.Tensor = mode.from_tensor(tensor, symbolic_context=context, source=self._source('batch'))
        self._bound()
        return result

    def shape(self, shape: Any) -> list[Any]:
        named = set(self.named.values())
        return [self._int(s) if type(s) is int and s in named else s for s in shape]

    def _int(self, value: int) -> Any:
        if value not in self._ints:
            from torch.fx.experimental.symbolic_shapes import DimDynamic
            source = self._source('size')
            symbol = self.env.create_symbol(value, source=source, dynamic_dim=DimDynamic.DUCK)
            self._ints[value] = self.env.create_symintnode(symbol, hint=value, source=source)
            self._bound()
        return self._ints[value]

    def _bound(self) -> None:
        for symbol in self.values():
            if symbol not in self._bounded:
                self._bounded.add(symbol)
                self.env.constrain_symbol_range(symbol, SMALLEST, LARGEST)

    def count(self, value: int, most: Any, known: bool) -> Any:
        """A size that the data decide. Below 2 it stays a number, as PyTorch has it: the line in the trace says so."""
        name, where = f'n{len(self._notes.counts) + 1}', self._places.here()
        self._notes.counts.append(Count(name, value, most, known, where))
        if self.env is None or value < SMALLEST:
            return value
        from torch.fx.experimental.symbolic_shapes import DimDynamic
        source = self._source('count')
        symbol = self.env.create_symbol(value, source=source, dynamic_dim=DimDynamic.DYNAMIC)
        self._counts[str(symbol)] = (name, value)
        self._bound()
        return self.env.create_symintnode(symbol, hint=value, source=source)

    # ---- what the trace says
    def names(self) -> dict[str, str]:
        if self.env is None:
            return {}
        by_value = {v: n for n, v in self.named.items()}
        found = {str(s): by_value[v] for s, v in self.values().items() if str(s) not in self._counts and v in by_value}
        order = {name: i for i, name in enumerate(self.named)}
        found = dict(sorted(found.items(), key=lambda item: order[item[1]]))
        return {**found, **{s: name for s, (name, _) in self._counts.items()}}

    def conditions(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Guards and pins as text with their lines, each once."""
        guards: dict[str, str] = {}
        pins: dict[str, str] = {}
        names = self.names()
        for expression, where in self._guards + self._pins:
            if self._always(expression):
                continue
            expression = _reduced(expression)
            is_pin = type(expression).__name__ == 'Equality' and any(getattr(a, 'is_number', False) for a in expression.args)
            try:
                (pins if is_pin else guards).setdefault(formulas.guard(expression, names), where)
            except formulas.Inexpressible:  # said the safe way: the sizes in it must stay
                for symbol in sorted(expression.free_symbols, key=str):
                    if str(symbol) in names:
                        pins.setdefault(f'{names[str(symbol)]} = {self.values()[symbol]}', where)
        return list(guards.items()), list(pins.items())

    def _always(self, expression: Any) -> bool:
        from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy
        try:
            r = bound_sympy(expression, {s: ValueRanges(SMALLEST, LARGEST) for s in expression.free_symbols})
        except Exception:  # an expression that the library cannot bound is simply kept
            return False
        import sympy
        return bool(r.is_bool and r.lower == sympy.true)


def _reduced(relation: Any) -> Any:
    """Without a factor that all terms share: 12*batch*seq = 24 is batch*seq = 2."""
    import sympy
    if not getattr(relation, 'is_Relational', False):
        return relation
    left, right = relation.args
    coefficients = [term.as_coeff_Mul()[0] for side in (left, right) for term in sympy.Add.make_args(side)]
    if not all(c.is_Integer for c in coefficients):
        return relation
    divisor = sympy.igcd(*(int(c) for c in coefficients)) if len(coefficients) > 1 else 1
    if divisor <= 1:
        return relation
    return relation.func(sympy.expand(left / divisor), sympy.expand(right / divisor), evaluate=False)
