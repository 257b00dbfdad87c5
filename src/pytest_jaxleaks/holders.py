"""Who keeps a tracer alive: from live tracers up to the things a program reaches them by.

The walk goes upwards over references. It does not pass through JAX's own book-keeping, the test
machinery, or (at the first attempt) frames, tracebacks and exceptions. Only the young objects are
mapped; reference counts tell which of the nodes something older refers to, and for those few the
collector is asked, once per step. (A reverse map of a whole heap takes seconds, one such question
some tens of milliseconds for 200,000 objects.)
"""

from __future__ import annotations

import contextvars
import functools
import itertools
import operator
import sys
import types
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks import collector as gc
from pytest_jaxleaks import unseen
from pytest_jaxleaks.captured_records import edges_to_captured_records
from pytest_jaxleaks.jax_internals import blocks_reference, is_jaxpr
from pytest_jaxleaks.links import array_elements, module_name
from pytest_jaxleaks.object_kinds import EXCEPTIONAL_TYPES, Kind, Kinds
from pytest_jaxleaks.reference_map import ReferenceMap, parents_among, references_to
from pytest_jaxleaks.roots import Root, RootFinder, Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set

__all__ = ["Holding", "Search", "find_holders"]

# Asking the collector for the referrers of some objects compares each reference in the heap with
# each of them; beyond this many a set of ids is faster.
_MOST_TARGETS_TO_ASK = 100
_MOST_QUESTIONS = 16


@dataclass(frozen=True)
class Holding:
    """A tracer that user code can reach.

    Attributes:
        tracer: the tracer.
        path: the objects from the root to the tracer, both included.
        root: what the first object of the path is to the program.
    """

    tracer: Any
    path: tuple[Any, ...]
    root: Root


@dataclass(frozen=True)
class Search:
    """The outcome of a search.

    Attributes:
        holdings: one per tracer that user code can reach, nearest roots first.
        kept_by_machinery: tracers that only the test machinery holds (log capture).
        others: tracers that nothing but JAX, an exception or another tracer holds.
    """

    holdings: tuple[Holding, ...]
    kept_by_machinery: tuple[Any, ...]
    others: tuple[Any, ...]


def find_holders(
    young: list[Any],
    surroundings: Surroundings,
    *,
    exceptions: bool = True,
    settled: Set[int] = frozenset(),
) -> Search:
    """Find out who holds the tracers among the objects that are not frozen.

    Args:
        young: what ``gc.get_objects()`` returned a moment ago. Reference counts are read
            through this list: whatever else refers to its elements counts as a holder.
        surroundings: what the caller knows about the program.
        exceptions: look a second time, through exceptions that are kept on purpose.
        settled: ids of tracers that are of no interest.

    Returns:
        Who holds what. The time taken grows with the number of young objects, and with the whole
        heap where an older object holds a tracer.
    """
    counts = list(map(sys.getrefcount, young))
    ignored = set(surroundings.ignored)
    climb = _Climb(young, counts, surroundings, ignored, exceptional=False, settled=settled)
    climb.leave_captured_records()
    holdings = climb.holdings()
    if exceptions and climb.met_exceptional and len(holdings) < len(climb.tracers):
        held = settled | {id(holding.tracer) for holding in holdings}
        again = _Climb(young, counts, surroundings, ignored, exceptional=True, settled=held)
        holdings += filter(_keeps_exception_on_purpose, again.holdings())
    held = {id(holding.tracer) for holding in holdings}
    rest = [tracer for tracer in climb.tracers if id(tracer) not in held]
    kept = climb.kept_by_machinery() if rest else set()
    return Search(
        tuple(holdings),
        tuple(tracer for tracer in rest if id(tracer) in kept),
        tuple(tracer for tracer in rest if id(tracer) not in kept),
    )


def _keeps_exception_on_purpose(holding: Holding) -> bool:
    """Tell whether a path through an exception starts at something that was made to keep it.

    An attribute of a user's object or a module's variable was. A test's local variable was not:
    it is what ``pytest.raises`` or ``except ... as error`` leave behind.
    """
    path = holding.path
    kinds = map(type, path[1:])
    first = next(i for i, cls in enumerate(kinds, 1) if issubclass(cls, EXCEPTIONAL_TYPES))
    keepers = [type(obj) for obj in path[1:first] if module_name(type(obj)) != "builtins"]
    if keepers:
        standard = module_name(keepers[-1]).partition(".")[0] in sys.stdlib_module_names
        return not standard or holding.root.kind == "module"
    return holding.root.kind not in ("local", "fixture") and holding.root.module != "sys"


@functools.cache
def _own_reference_count() -> int:
    """Return what ``sys.getrefcount`` says, through ``map``, of what only a list holds."""
    return next(map(sys.getrefcount, [[]]))


class _Climb:
    """One walk upwards from all tracers at once, and the way back down from the roots."""

    def __init__(
        self,
        young: list[Any],
        counts: list[int],
        surroundings: Surroundings,
        ignored: set[int],
        *,
        exceptional: bool,
        settled: Set[int] = frozenset(),
    ) -> None:
        self._young = young
        self._counts = counts
        self._surroundings = surroundings
        self._exceptional = exceptional
        self._kinds = Kinds(surroundings.machinery)
        self._finder = RootFinder(surroundings)
        # The part of the heap from which a tracer can be reached: objects, edges, roots.
        self._nodes: dict[int, Any] = {}
        self._below: dict[int, dict[int, None]] = {}
        self._roots: dict[int, Root] = {}
        self._below_machinery: set[int] = set()
        # References to a node that nothing seen so far explains, and the ids of what was seen
        # before the older objects were asked.
        self._missing: dict[int, int] = {}
        self._counted: set[int] = set()
        self._ignored = ignored
        ignored |= {id(young), id(self._nodes)}
        self._unseen: unseen.Unseen | None = None
        # Jaxprs, and what was reached by way of one alone.
        self._above_jaxprs: set[int] = set()
        # Tuples that JAX's objects refer to: its C++ caches have them for keys.
        self._keys_of_jax: set[int] = set()
        self.met_exceptional = False
        tracers = self._kinds.tracers(young)
        self.tracers = [tracer for tracer in tracers if id(tracer) not in settled]
        self._ignored.add(id(self.tracers))
        self._climb()

    def _climb(self) -> None:
        for tracer in self.tracers:
            self._nodes[id(tracer)] = tracer
        for value, root in unseen.context_values():
            self._finder.give(value, root)
        for frame in self._surroundings.running:
            self._give_locals(frame)
        for tracer in self.tracers:
            self._note_root(tracer)
        outside = self._climb_young()
        if outside:
            # The collector answers for what it is not told to leave alone. Whoever froze the
            # heap does so again after a search.
            gc.unfreeze()
            self._climb_old(outside)

    def _give_locals(self, frame: Any, where: str = "") -> None:
        for value, root in unseen.local_values(frame, where):
            self._finder.give(value, root)

    # -- one reference ----------------------------------------------------------------------

    def _passes(self, parent: Any, child: Any) -> bool:
        """Tell whether a reference from ``parent`` to ``child`` counts as the program's."""
        kind = self._kinds.of(parent)
        if kind == Kind.PLAIN:
            return self._passes_plain(parent, child)
        if self._finder.root_of(parent) is not None:
            return True
        if kind == Kind.ASK:
            return not blocks_reference(parent, child)
        if kind == Kind.EXCEPTIONAL:
            self.met_exceptional = True
            return self._exceptional
        if kind == Kind.MACHINERY:
            self._below_machinery.add(id(child))
        return False

    def _passes_plain(self, parent: Any, child: Any) -> bool:
        if id(parent) in self._ignored:
            return False
        if not self._finder.is_dead_end(parent):
            return True
        if self._finder.is_machinery(parent):
            self._below_machinery.add(id(child))
        return False

    def _take(self, parent: Any, child_id: int) -> bool:
        """Record a reference that counts; tell whether ``parent`` is a new node, and no root."""
        if not self._passes(parent, self._nodes[child_id]):
            return False
        self._below.setdefault(id(parent), {})[child_id] = None
        by_jaxpr = child_id in self._above_jaxprs or is_jaxpr(parent)
        if not by_jaxpr:
            self._above_jaxprs.discard(id(parent))
        if id(parent) in self._nodes:
            return False
        if by_jaxpr:
            self._above_jaxprs.add(id(parent))
        self._nodes[id(parent)] = parent
        return not self._note_root(parent)

    def _note_root(self, node: Any) -> bool:
        root = self._finder.root_of(node)
        if root is not None:
            self._roots[id(node)] = root
        return root is not None

    # -- young objects ----------------------------------------------------------------------

    def _climb_young(self) -> list[Any]:
        """Follow references among the young objects; return nodes that others refer to as well."""
        kinds = list(self._kinds.of_all(self._young))
        heap = ReferenceMap(list(itertools.compress(self._young, kinds)))
        references: dict[int, int] = {}
        frontier = {node_id for node_id in self._nodes if node_id not in self._roots}
        while frontier:
            above: set[int] = set()
            for parent, child_ids in heap.parents_of(frontier):
                for child_id in child_ids:
                    references[child_id] = references.get(child_id, 0) + 1
                    if self._take(parent, child_id):
                        above.add(id(parent))
            frontier = above
        return self._referred_from_outside(references, kinds)

    def _referred_from_outside(self, references: dict[int, int], kinds: list[Kind]) -> list[Any]:
        """Return the nodes that have more references than the young objects explain."""
        own = _own_reference_count()
        are_nodes = map(self._nodes.__contains__, map(id, self._young))
        pairs = zip(self._young, self._counts, strict=True)
        for obj, count in itertools.compress(pairs, are_nodes):
            if id(obj) not in self._roots:
                left = count - own - references.get(id(obj), 0)
                if left > 0:
                    self._missing[id(obj)] = left
        if self._missing:
            self._count_references_by_jax(kinds)
        return [self._nodes[node_id] for node_id, left in self._missing.items() if left > 0]

    def _count_references_by_jax(self, kinds: list[Kind]) -> None:
        """Subtract the references that JAX's young objects and its caches explain."""
        holders = list(itertools.compress(self._young, map(operator.not_, kinds)))
        found = filter(self._missing.__contains__, map(id, gc.get_referents(*holders)))
        # What was walked through, such as a young cache, has been counted on the way.
        asked = map(Kind.ASK.__eq__, kinds)
        walked = set(map(id, itertools.compress(self._young, asked)))
        caches = self._surroundings.jax_caches.references(self._missing, walked)
        for node_id in itertools.chain(found, caches):
            self._missing[node_id] -= 1
            if type(self._nodes[node_id]) is tuple:
                self._keys_of_jax.add(node_id)

    # -- older objects ----------------------------------------------------------------------

    def _climb_old(self, targets: list[Any]) -> None:
        """Follow references from older objects.

        One question to the collector per step; if that takes many steps (a long linked list), all
        objects are mapped once instead.
        """
        self._counted = {*map(id, self._young), *self._surroundings.jax_caches.ids()}
        heap: ReferenceMap | None = None
        steps = 0
        while targets:
            while targets:
                self._ignored.add(id(targets))
                if steps == _MOST_QUESTIONS:
                    everything = gc.get_objects()
                    self._ignored.add(id(everything))
                    heap = ReferenceMap(everything)
                targets = self._step(targets, heap)
                steps += 1
            if self._unexplained():
                targets = self._look_beyond_the_collector()
                self._missing.clear()

    def _unexplained(self) -> bool:
        """Tell whether something that the collector does not see holds a node.

        With a jaxpr and what holds one that is nothing unusual: JAX's caches of compiled code do.
        """
        missing = (node_id for node_id, left in self._missing.items() if left > 0)
        return any(
            node_id not in self._above_jaxprs and node_id not in self._keys_of_jax
            for node_id in missing
        )

    def _step(self, targets: list[Any], heap: ReferenceMap | None) -> list[Any]:
        wanted = set(map(id, targets))
        found = []
        pairs = _ask_collector(targets, wanted) if heap is None else heap.parents_of(wanted)
        pairs = [(parent, ids) for parent, ids in pairs if id(parent) not in self._ignored]
        self._ignored.add(id(pairs))
        self._count_old_references(wanted, pairs)
        for parent, child_ids in pairs:
            for child_id in child_ids:
                if self._take(parent, child_id):
                    found.append(parent)
        return found

    def _count_old_references(self, wanted: set[int], pairs: list[tuple[Any, list[int]]]) -> None:
        """Subtract what older objects explain; an old node must have any referrer at all."""
        explained: Counter[int] = Counter()
        for parent, child_ids in pairs:
            if id(parent) not in self._counted:
                explained.update(child_ids)
        for node_id in wanted:
            if node_id in self._missing:
                self._missing[node_id] -= explained[node_id]
            elif not explained[node_id]:
                self._missing[node_id] = 1

    def _look_beyond_the_collector(self) -> list[Any]:
        """Look where references are that the collector does not see; return new nodes."""
        heap = gc.get_objects()
        self._ignored.add(id(heap))
        for name, stack in unseen.other_threads():
            for frame in stack:
                self._give_locals(frame, f" (thread '{name}')")
        for value, root in (*unseen.thread_local_values(heap), *unseen.signal_handlers()):
            self._finder.give(value, root)
        for node_id, node in self._nodes.items():
            if node_id not in self._roots:
                if type(node) is contextvars.Context and self._missing.get(node_id, 0) > 0:
                    # What refers to it is no object: a thread runs in it.
                    self._finder.give(node, Root("context"))
                self._note_root(node)
        found = self._unseen_containers(heap)
        heap.clear()  # should it outlive this function, it must not hold everything there is
        return found

    def _unseen_containers(self, heap: list[Any]) -> list[Any]:
        if self._unseen is None:
            self._unseen = unseen.unseen_containers(heap)
            self._ignored |= {id(self._unseen), *map(id, self._unseen)}
        found = []
        for container, child_ids in self._unseen_parents(self._unseen):
            for child_id in child_ids:
                if self._take(container, child_id):
                    found.append(container)
        return found

    def _unseen_parents(self, hidden: unseen.Unseen) -> Iterator[tuple[Any, list[int]]]:
        for array in hidden.arrays:
            ids = [id(element) for _, element in array_elements(array)]
            yield array, list(filter(self._nodes.__contains__, ids))
        plain = [*hidden.untracked, *hidden.jitted]
        yield from list(parents_among(plain, set(self._nodes)))

    # -- and down again ---------------------------------------------------------------------

    def leave_captured_records(self) -> None:
        """Take no way from a test's variables to log records that were captured for it."""
        captured = self.kept_by_machinery()
        graph = self._nodes, self._below, self._roots
        for parent_id, record_id in edges_to_captured_records(*graph, captured):
            del self._below[parent_id][record_id]

    def holdings(self) -> list[Holding]:
        """Return the shortest way from a root to each tracer that has one.

        A way through a jaxpr, whose constants may be nobody's business, or from what the standard
        library has for a thread that still runs, is taken where there is no other. Among
        equally short ones the choice follows the program (order of roots, of attributes) and not
        the heap, so that a leak has the same name in each run.
        """
        roots = sorted(self._roots, key=lambda each: _rank(self._roots[each], self._nodes[each]))
        later = deque(reversed(list(filter(self._is_of_a_threads_machinery, roots))))
        waiting = deque(itertools.filterfalse(self._is_of_a_threads_machinery, roots))
        above: dict[int, int | None] = dict.fromkeys(waiting)
        while waiting or later:
            parent_id = (waiting or later).popleft()
            above.setdefault(parent_id, None)
            below = self._below.get(parent_id, {})
            in_order = map(id, gc.get_referents(self._nodes[parent_id])) if below else ()
            for child_id in itertools.chain(filter(below.__contains__, in_order), below):
                if child_id not in above:
                    above[child_id] = parent_id
                    deferred = is_jaxpr(self._nodes[child_id])
                    (later if deferred else waiting).append(child_id)
        return [self._holding(tracer, above) for tracer in self.tracers if id(tracer) in above]

    def _is_of_a_threads_machinery(self, node_id: int) -> bool:
        """Tell whether a root is where the standard library has a running thread's affairs."""
        root = self._roots[node_id]
        if root.kind == "local":
            return (root.module or "").partition(".")[0] in sys.stdlib_module_names
        return root.kind == "module" and root.module == "threading"

    def _holding(self, tracer: Any, above: dict[int, int | None]) -> Holding:
        path = []
        node_id: int | None = id(tracer)
        while node_id is not None:
            path.append(self._nodes[node_id])
            node_id = above[node_id]
        path.reverse()
        return Holding(tracer, tuple(path), self._roots[id(path[0])])

    def kept_by_machinery(self) -> set[int]:
        """Return the ids of the tracers that an object of the test machinery leads to."""
        reached = set(self._below_machinery)
        waiting = deque(reached)
        while waiting:
            for child_id in self._below.get(waiting.popleft(), ()):
                if child_id not in reached:
                    reached.add(child_id)
                    waiting.append(child_id)
        return reached


_RANKS = ("fixture", "module", "class", "local")


def _rank(root: Root, node: Any) -> tuple[int, str, str]:
    """Order roots: a fixture names a value better than the tests that use it.

    What a module refers to itself, and not by its dict of variables, has no name there.
    """
    is_named = root.kind in _RANKS and not issubclass(type(node), types.ModuleType)
    place = _RANKS.index(root.kind) if is_named else len(_RANKS)
    return place, root.module or "", root.text


def _ask_collector(targets: list[Any], wanted: set[int]) -> Iterable[tuple[Any, list[int]]]:
    """Return the objects that refer to one of the targets, and the ids of those they refer to."""
    if len(targets) > _MOST_TARGETS_TO_ASK:
        return parents_among(gc.get_objects(), wanted)
    found = gc.get_referrers(*targets)
    counts = list(map(sys.getrefcount, found))
    own = _own_reference_count()
    # Python 3.13 names the tuple of arguments too, to which nothing else refers.
    referrers = [obj for obj, count in zip(found, counts, strict=True) if count > own]
    return [(obj, references_to(wanted, obj)) for obj in referrers]
