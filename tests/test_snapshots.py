"""What is kept of a value and what counts as a difference (``snapshots.py`` and its comparison)."""

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import math
import pathlib
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from jax.experimental import checkify

from pytest_jaxleaks import InvalidArgumentError
from pytest_jaxleaks.closeness import outside
from pytest_jaxleaks.tolerances import default_tolerance
from pytest_jaxleaks.variant_records import differences, record_of


def compared(one, other, *, loose=False):
    """Compare two values as runs in two processes would: by way of a pickle."""
    records = [[pickle.loads(pickle.dumps(record_of(value)))] for value in (one, other)]
    return differences(*records, loose=loose)


def lines(one, other, *, loose=False):
    """Return the differences, where everything can be compared."""
    found, notes = compared(one, other, loose=loose)
    assert notes == []
    return found


class Colour(enum.Enum):
    """Compares by identity, and is pickled by name."""

    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    """A number to JAX."""

    LOW = 1


@dataclasses.dataclass
class Run:
    """Compares field by field, a leaf to JAX."""

    loss: float
    steps: list = dataclasses.field(default_factory=list)
    started: float = dataclasses.field(default=0.0, compare=False)


class Version:
    """Says itself what equal means: the build does not matter."""

    def __init__(self, number, build=0):
        self.number, self.build = number, build

    def __eq__(self, other):
        return self.number == other.number

    __hash__ = None


class Opaque:
    """Does not say what equal means."""

    def __init__(self, value):
        self.value = value


class Moody:
    """Refuses to be compared."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        raise RuntimeError("not today")

    __hash__ = None


class Boxed:
    """Equal element by element, as other libraries' arrays are."""

    def __init__(self, *values):
        self.values = values

    def __eq__(self, other):
        return np.array(self.values) == np.array(other.values)

    __hash__ = None


class Module(eqx.Module):
    """A node with static data."""

    weight: jax.Array
    static: object = eqx.field(static=True)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    """A node that JAX flattens by its fields."""

    x: jax.Array
    name: str = dataclasses.field(metadata={"static": True}, default="a")


NARROW = [
    jnp.float8_e4m3fn,
    jnp.float8_e5m2,
    jnp.float8_e4m3b11fnuz,
    jnp.float8_e3m4,
    jnp.float8_e8m0fnu,
    jnp.float4_e2m1fn,
]


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_floats_agree_with_their_neighbours_only(dtype):
    """Over all pairs of values: one representable value apart passes, two do not."""
    codes = np.arange(2 ** ml_dtypes.finfo(dtype).bits, dtype=np.uint8)
    values = np.unique(codes.view(np.dtype(dtype)).astype(np.float64))
    values = values[np.isfinite(values)]
    one, other = (grid.ravel() for grid in np.meshgrid(values, values))
    index = np.arange(len(values))
    apart = np.abs(np.subtract.outer(index, index)).T.ravel()
    wrong = outside(one, other, default_tolerance(dtype).bound(one, other))
    np.testing.assert_array_equal(wrong, apart > 1)


@pytest.mark.parametrize("dtype", NARROW)
def test_a_float8_result_twice_as_large_as_expected_differs(dtype):
    """The tolerance of a storage type is small against its values."""
    one, other = jnp.array([1, 2], dtype), jnp.array([1, 8], dtype)
    if jnp.finfo(dtype).max < 8:
        other = jnp.array([1, 6], dtype)
    (line,) = lines(one, other)
    assert "at [1]; 1 of 2 elements differ by more than one representable value of" in line
    (line,) = lines({"a": one}, {"a": jnp.array([1, jnp.nan], jnp.float8_e5m2).astype(dtype)})[:1]
    assert line.startswith("value['a']: 2 and ")


@pytest.mark.parametrize("dtype", [jnp.int4, jnp.uint4, jnp.int8, jnp.int32])
def test_integers_of_any_width_are_exact(dtype):
    """Integers do not round."""
    assert lines(jnp.array([1, 2], dtype), jnp.array([1, 2], dtype)) == []
    assert lines(jnp.array([1, 2], dtype), jnp.array([1, 3], dtype)) == [
        "value: 2 and 3 at [1]; 1 of 2 elements differ"
    ]


@pytest.mark.parametrize(
    ("one", "other", "line"),
    [
        (np.uint64([2**63]), np.uint64([2**63 + 1]), "value: 9223372036854775808 and 922337203"),
        (np.int64([1]), np.int64([2**32 + 1]), "value: 1 and 4294967297 at [0]"),
        (np.array([1e300]), np.array([np.inf]), "value: 1e+300 and inf at [0]"),
        (np.array([1.0]), np.array([1 + 1e-9]), "value: 1.0 and 1.000000001 at [0]"),
        (np.float32([1]), np.float64([1]), "value: numpy float32[1] and numpy float64[1]"),
        (jnp.float32([1]), np.float64([1]), "value: float32[1] and numpy float64[1]"),
        (np.float64(1), np.float64(1 + 1e-9), "value: 1.0 and 1.000000001"),
        (np.float64(1), 1.0, "value: numpy float64[] and weak float32[]"),
        (np.longdouble(1), np.longdouble(1) + 1e-16, "value: 1.0 and 1.0000"),
        (np.complex128([1e300]), np.complex128([1e299]), "value: (1e+300+0j) and (1e+299+0j)"),
        (1e300, math.inf, "value: 1e+300 and inf"),
        (2**70, 2**70 + 1, "value: 1180591620717411303424 and 1180591620717411303425"),
        (1, 1.0, "value: Python int and Python float"),
        (1, True, "value: Python int and Python bool"),
        (2**40, jnp.int32(1), "value: Python int and int32[]"),
    ],
)
def test_values_are_compared_at_their_own_width(one, other, line):
    """Nothing is narrowed to JAX's default types before it is compared."""
    (found,) = lines(one, other)
    assert found.startswith(line)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array([1.0]), np.array([1 + 1e-15])),
        (np.array([np.nan, np.inf]), np.array([np.nan, np.inf])),
        (np.arange(3, dtype=">i4"), np.arange(3, dtype="<i4")),
        (1.0, 1.0 + 1e-7),
        (math.nan, math.nan),
        (Level.LOW, 1),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), np.array(["2020-01-01", "NaT"], "M8[D]")),
        (np.array([(1, np.nan)], "i4,f8"), np.array([(1, np.nan)], "i4,f8")),
        (np.array([b"ab"], "V2"), np.array([b"ab"], "V2")),
        (np.array([np.nan, [1, {"a": 2}]], object), np.array([np.nan, [1, {"a": 2}]], object)),
    ],
)
def test_values_that_agree(one, other):
    """Rounding in the value's own dtype, byte order and repeated NaN or NaT are no difference."""
    assert lines(one, other) == []


def test_a_float_that_came_from_an_array_is_as_precise_as_the_array():
    """``float(loss)`` carries the rounding of float32; under x64 it is as precise as float64."""
    assert lines(float(jnp.float32(0.1)), 0.1) == []
    with jax.enable_x64(True):
        assert lines(float(np.float32(0.1)), 0.1) != []


def long(middle, kind):
    """Make an array whose repr is abbreviated."""
    array = np.array([str(n) for n in range(3000)]).astype(kind)
    array[1500] = middle
    return array


@pytest.mark.parametrize("kind", ["U8", "S8", object])
def test_long_arrays_without_numbers_are_compared_element_by_element(kind):
    """A difference in the middle is found, and named by its index."""
    assert lines(long("x", kind), long("x", kind)) == []
    (line,) = lines([long("x", kind)], [long("y", kind)])
    assert "[1500]" in line
    assert "'x' and" in line


def test_dates_and_structured_arrays_are_compared():
    """Types that JAX does not know compare in NumPy's way."""
    dates = np.arange("2020-01-01", "2024-01-01", dtype="M8[D]")
    other = dates.copy()
    other[700] = other[701]
    assert len(lines(dates, other)) == 1
    table = np.zeros(2000, [("a", "i4"), ("b", "f4", 2)])
    changed = table.copy()
    changed["b"][1000, 1] = 1
    (line,) = lines(table, changed)
    assert "at [1000]; 1 of 2000 elements differ" in line


def test_masked_arrays_are_compared_where_they_hold_something():
    """The mask has to be equal; what it hides does not matter."""
    one = np.ma.array([1, 2], mask=[False, True])
    assert lines(one, np.ma.array([1, 3], mask=[False, True])) == []
    (line,) = lines(one, np.ma.array([1, 2], mask=[True, True]))[:1]
    assert line.startswith("value.mask: False and True at [0]")
    (line,) = lines(one, np.ma.array([2, 2], mask=[False, True]))
    assert line.startswith("value.compressed(): 1 and 2 at [0]")


def test_arrays_of_objects_may_hold_arrays():
    """Each element is compared as a value of its own."""
    one, other = np.empty(2, object), np.empty(2, object)
    one[0], other[0] = {"w": jnp.ones(3)}, {"w": jnp.ones(3) * 2}
    assert lines(one, other) == [
        "value[0]['w']: 1.0 and 2.0 at [0]; 3 of 3 elements differ by more than 7.6e-06 of the "
        "largest"
    ]


@pytest.mark.parametrize(
    ("one", "other", "detail"),
    [
        (np.arange(3000.0), np.arange(3000.0) + (np.arange(3000) == 1500), "1500"),
        ("at 0x1234", "at 0x9999", "'at 0x9999'"),
        (0.1, 0.1 + 1e-9, "0.100000001"),
        ((1, "a"), (1, "b"), "'a'"),
        ({"lr": 1}, {"lr": 2}, "'lr': 2"),
        (frozenset("a"), frozenset("b"), "frozenset"),
        (jnp.float32, jnp.float16, "float16"),
        (Run(1.0), Run(2.0), "1.0"),
        (Version(1), Version(2), "Version"),
        (math.sin, math.cos, "sin"),
        (functools.partial(max, 1), functools.partial(max, 2), "1"),
    ],
)
@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_static_data_is_compared_exactly(one, other, detail):
    """What a node keeps beside its leaves has to be equal, however long or alike it prints."""
    same, different = (
        (Module(jnp.ones(2), one), Module(jnp.ones(2), each)) for each in (one, other)
    )
    assert lines(*same) == []
    (line,) = lines(*different)
    assert line.startswith("value: treedef")
    assert detail in line


def test_static_functions_agree_by_place():
    """Each run makes its lambda anew: it is the same one if it stands at the same place."""

    def made():
        return lambda: None

    def other():
        return lambda: None

    assert lines(Module(1.0, made()), Module(1.0, made())) == []
    assert len(lines(Module(1.0, made()), Module(1.0, other()))) == 1
    assert lines(Module(1.0, jax.jit(made())), Module(1.0, jax.jit(made()))) == []
    assert lines(Module(1.0, jax.nn.relu), Module(1.0, jax.nn.relu)) == []
    assert len(lines(Module(1.0, jax.nn.relu), Module(1.0, jax.nn.relu6))) == 1


def test_static_functions_agree_by_what_they_close_over():
    """Plain values count, through functions and tuples of them, rounding allowed; logs do not."""

    def made(rate, log=(), scale=1.0):
        inner = functools.partial(lambda x, *, b: x * b, b=scale)

        @functools.wraps(inner.func)
        def outer(x, power=2):
            log.append(x)
            return inner(x) * rate**power

        return lambda x: (outer, inner)[0](x)

    assert lines(Module(1.0, made(1.0, [1])), Module(1.0, made(1.0, [2, 3]))) == []
    one, other = jnp.array([1.0, 2.0]), jnp.array([1.0, 2.0 + 1e-6])
    assert lines(Module(1.0, made(one)), Module(1.0, made(other))) == []
    (line,) = lines(Module(1.0, made(one)), Module(1.0, made(2 * one)))
    assert "[1] closing over outer.rate: 1.0 and 2.0 at [0]; 2 of 2 elements differ" in line
    (line,) = lines([made(1.0)], [made(1.0, scale=3.0)])
    assert line.startswith("value[0] closing over inner.b: 1.0 and 3.0")


def test_functions_that_refer_to_each_other_come_to_an_end():
    """A recursive function closes over itself; what two share is kept once."""

    def made(rate):
        def even(n):
            return n == 0 or odd(n - 1)

        def odd(n):
            return n != rate and even(n - 1)

        def both(one, other):
            return lambda n: (one(n), other(n))

        for _ in range(60):
            even = both(even, functools.partial(even))
        return even

    assert lines([made(0)], [made(0)]) == []
    assert len(lines([made(0)], [made(1)])) == 1


def test_optimizers_of_optax_agree_by_their_hyperparameters():
    """They are tuples of functions, several calls deep."""
    assert lines(optax.adam(1e-3), optax.adam(1e-3)) == []
    found = lines(optax.adam(1e-3), optax.adam(1e-2))
    assert any("0.001 and" in line or "0.01" in line for line in found)
    assert any("b1" in line for line in lines(optax.adam(1.0), optax.adam(1.0, b1=0.5)))


def test_functions_that_jax_made_by_tracing_are_named():
    """With a ``jit`` inside they hold another program under nojit: types only are compared."""
    makers = {
        "jax._src.api.VJP": lambda: jax.vjp(jax.jit(jnp.sin), jnp.ones(3)),
        "jax.tree_util.Partial": lambda: jax.linearize(jax.jit(jnp.sin), jnp.ones(3)),
        "equinox.": lambda: (0, eqx.filter_closure_convert(jax.jit(jnp.sin), jnp.ones(3))),
    }
    for name, make in makers.items():
        one = record_of(make())
        with jax.disable_jit():
            other = record_of(make())
        found, (note,) = differences([one], [other], loose=False)
        assert found == []
        assert note.startswith(f"value[1]: {name}")
        assert "was compared by type only, since JAX made it by tracing" in note
        assert note.endswith("call it, and record what it returns")
    assert lines(jax.tree_util.Partial(jnp.dot, 1.0), jax.tree_util.Partial(jnp.dot, 2.0)) == [
        "value[<flat index 0>][0]: 1.0 and 2.0; 1 of 1 elements differ by more than 7.6e-06 of "
        "the largest"
    ]


def test_treedefs_in_static_data_are_compared_node_by_node():
    """distrax keeps one beside the leaves; it may print with an address."""

    def structure(static):
        return jax.tree_util.tree_structure({"a": Module(1.0, static)})

    functions = lambda: 1, lambda: 1  # on one line
    assert len(lines(*(Module(1.0, structure(each)) for each in functions))) == 1
    same = [Module(1.0, structure(each)) for each in (Version(1), Version(1, build=2))]
    assert lines(*same) == []
    (line,) = lines(Module(1.0, structure(Version(1))), Module(1.0, structure(Version(2))))
    assert "that are not equal by ==" in line


def test_what_pytest_raises_caught_is_compared_by_its_exception():
    """Where it was raised does not matter: tracebacks differ from run to run."""

    def caught(error):
        with pytest.raises(Exception) as info:
            raise error
        return info

    assert lines(caught(ValueError("a")), caught(ValueError("b"))) == []
    assert lines(caught(ValueError("a")), caught(TypeError("b"))) != []

    def checked(x):
        checkify.check(x > 0, "not positive")
        return x

    error, _ = checkify.checkify(checked)(1.0)  # jax 0.10 numbers them as they come
    assert lines(error, error) == []


def test_what_jax_cannot_flatten_is_refused():
    """The message names jax_record, the place and JAX's reason."""
    with pytest.raises(InvalidArgumentError, match=r"^jax_record: the value is no pytree: ValueE"):
        record_of({1: 1, "a": 2})


def test_jax_objects_that_cannot_be_pickled_are_compared_by_their_text():
    """Meshes, devices and shardings print what they are."""

    def sharding(axis):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), (axis,))
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(axis))

    assert lines(Module(1.0, sharding("x")), Module(1.0, sharding("x"))) == []
    assert len(lines(Module(1.0, sharding("x")), Module(1.0, sharding("y")))) == 1


def test_contents_of_references_are_compared():
    """``jax.new_ref`` holds what the test wrote into it."""
    one, other = (jax.new_ref(jnp.arange(3.0)) for _ in range(2))
    assert lines(one, other) == []
    other[1] = 5.0
    (line,) = lines({"state": one}, {"state": other})
    assert line.startswith("value['state'][...]: 1.0 and 5.0 at [1]; 1 of 3 elements differ")
    assert lines(one, jnp.arange(3.0)) == ["value: Ref and float32[3]"]
    assert lines(jax.new_ref(jnp.ones(2)), jax.new_ref(jnp.ones(3))) == [
        "value[...]: float32[2] and float32[3]"
    ]


@pytest.mark.parametrize(
    ("one", "other", "line"),
    [
        ("at 0x1234", "at 0x9999", "value: 'at 0x1234' and 'at 0x9999'"),
        (
            "a" * 500 + "b",
            "a" * 500 + "c",
            "value: ...aaaaaaaaaaaaaaaaaaaab'... and ...aaaaaaaaaaa",
        ),
        (b"a", b"b", "value: b'a' and b'b'"),
        ("a", b"a", "value: builtins.str and builtins.bytes"),
        (Colour.RED, Colour.BLUE, "value: Colour.RED and Colour.BLUE"),
        ({"a": {1, 2}}, {"a": {1, 3}}, "value['a']: {1, 2} and {1, 3}"),
        (Run(1.0), Run(2.0), "value.loss: 1.0 and 2.0"),
        (
            Run(1.0, [1]),
            Run(1.0, [1, 2]),
            "value.steps: treedef PyTreeDef([*]) and PyTreeDef([*, *])",
        ),
        (Version(1), Version(2), "value: two objects of type "),
        (Boxed(1, 2), Boxed(1, 3), "value: two objects of type "),
        (decimal.Decimal("0.1"), decimal.Decimal("0.2"), "value: Decimal('0.1') and"),
        (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), "value: datetime.date("),
        (pathlib.PurePosixPath("a"), pathlib.PurePosixPath("b"), "value: PurePosixPath('a') and"),
        (collections.deque([1, 2]), collections.deque([1, 3]), "value[1]: 2 and 3"),
        (slice(1), slice(2), "value: slice("),
        (np.dtype("f4"), np.dtype("f8"), "value: "),
        (jax.ShapeDtypeStruct((2,), "f4"), jax.ShapeDtypeStruct((3,), "f4"), "value: ShapeDtype"),
        (Registered(jnp.ones(2), "a"), Registered(jnp.ones(2), "b"), "value: treedef"),
        (Registered(jnp.ones(2)), Registered(jnp.zeros(2)), "value.x: 1.0 and 0.0 at [0]"),
        (None, 1, "value: treedef PyTreeDef(None) and PyTreeDef(*)"),
    ],
)
def test_other_leaves_are_compared_by_what_equal_means_to_them(one, other, line):
    """Text exactly, containers part by part, objects by their own ``==``."""
    assert lines(one, one) == []
    (found,) = lines(one, other)
    assert found.startswith(line)


def test_an_objects_own_equality_decides():
    """What its class leaves out of the comparison does not matter."""
    assert lines(Version(1, build=1), Version(1, build=2)) == []
    assert lines(Run(1.0, started=1.0), Run(1.0, started=2.0)) == []
    assert lines(Boxed(1, 2), Boxed(1.0, 2.0)) == []


class Local:
    """Makes objects that no other process can have."""

    class Unpickled(Version):
        """Cannot be pickled."""

        def __reduce__(self):
            raise TypeError("bound to this process")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Opaque, "its class defines no __eq__"),
        (Local.Unpickled, "it cannot be pickled (TypeError: bound to this process)"),
        (Moody, "its == raised RuntimeError: not today"),
    ],
)
def test_an_object_that_cannot_be_compared_is_named(make, why):
    """It is neither a difference nor passed over: a note says where it is and why."""
    found, notes = compared({"a": make(1)}, {"a": make(2)})
    assert found == []
    name = f"{make.__module__}.{make.__qualname__}"
    assert notes == [f"value['a']: {name} was compared by type only, since {why}"]
    found, notes = compared(Module(1.0, make(1)), Module(1.0, make(2)))
    assert found == []
    (note,) = notes
    assert note.startswith(f"value, static data of {__name__}.Module")
    assert lines({"a": make(1)}, {"a": 1})[0].startswith(f"value['a']: {name} and ")


def test_a_structure_that_contains_itself_comes_to_an_end():
    """Static data may refer back to what it is part of."""
    runs = []
    for value in (1, 1, 2):
        run = Run(float(value))
        run.steps.append(run)
        runs.append(run)
    assert lines(runs[0], runs[1]) == []
    assert len(lines(runs[0], runs[2])) == 1


def test_a_record_is_a_copy():
    """What the test writes into its array afterwards is not what it recorded."""
    array = np.zeros(3)
    record = record_of([array])
    array[0] = 1
    assert differences([record], [record_of([np.zeros(3)])], loose=False) == ([], [])


def test_a_tracer_in_static_data_cannot_be_recorded():
    """The message says where it is."""
    with pytest.raises(InvalidArgumentError, match=r"the value \(static data of Module\)"):
        jax.jit(lambda x: record_of({"m": Module(1.0, Run(x))}))(1.0)


def test_a_python_number_agrees_with_the_array_of_another_width():
    """Under x64 a number may be an array where it is too large for one otherwise."""
    with jax.enable_x64(True):
        array = record_of(jax.jit(lambda: 2**40)())
        other = record_of(jax.jit(lambda: 2**41)())
    number = record_of(2**40)
    for pair in ([number], [array]), ([array], [number]):
        assert differences(*pair, loose=True) == ([], [])
    found, _ = differences([number], [other], loose=True)
    assert found[0].startswith("value: 1099511627776 and 2199023255552")


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.int8])
def test_loose_means_32_and_64_bits_only(dtype):
    """x64 turns float32 into float64; another width is a difference under it too."""
    with jax.enable_x64(True):
        wide = record_of(jnp.ones(2, jnp.int64 if dtype == jnp.int8 else jnp.float64))
    (line,) = differences([record_of(jnp.ones(2, dtype))], [wide], loose=True)[0]
    assert "64[2]" in line
