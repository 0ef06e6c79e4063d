"""Routings and layers equal their compiled selves, in one graph; and run under autocast."""

import copy

import pytest
import torch

import torchcaps as tc
from torchcaps.votes.operator import parameters_of, suits_operator

ROUTING_CASES = [
    ("dynamic", {}),
    ("dynamic", {"gradients": "last"}),
    ("dynamic", {"leaky": True, "amendment": True}),
    ("dynamic", {"hard": True}),
    ("dynamic", {"bias": True, "out_capsules": 3, "out_dim": 4}),
    ("kmeans", {}),
    ("kmeans", {"distance": "inner"}),
    ("entropy", {}),
    ("gaussian", {}),
    ("gaussian", {"covariance": "full"}),
    ("em", {"out_capsules": 3}),
    ("em", {"out_capsules": 3, "preset": "official"}),
    ("heinsen", {"out_capsules": 3, "in_capsules": 6}),
    ("variational", {"out_capsules": 3}),
    ("kde", {}),
    ("kde", {"kernel": "epanechnikov", "bandwidth": 3.0, "gradients": "last"}),
    ("inverted", {"out_dim": 4}),
    ("attention", {"in_capsules": 6, "out_capsules": 3}),
    ("uniform", {}),
]


def make_routing(name, options, iterations=2):
    """With two iterations, where there are any to choose: enough for every step of the loop, and quick to compile."""
    chosen = {} if name in ("attention", "uniform") else {"iterations": iterations}
    return tc.make_routing(name, **chosen, **options)


def grid(dim=16):
    poses = torch.randn(2, 5, 5, 2, dim)
    return tc.Capsules(poses, torch.rand(poses.shape[:-1]))


def line():
    poses = torch.randn(2, 7, 2, 4)
    return tc.Capsules(poses, torch.rand(2, 7, 2), torch.arange(7).view(1, 7, 1).expand(2, 7, 2) < 5)


def volume():
    return tc.Capsules(torch.randn(2, 2, 3, 3, 2, 4), torch.rand(2, 2, 3, 3, 2))


def row():
    return tc.Capsules(torch.randn(2, 6, 4), torch.rand(2, 6))


# Where the routing is that of a case before, one iteration.
LAYER_CASES = {
    "dense": (lambda: tc.DenseCapsules(6, 3, 4, 5, iterations=2), row),
    "dense-shared": (lambda: tc.DenseCapsules(None, 3, 4, 5, votes="shared", normalize=True, iterations=1), row),
    "dense-factorized": (lambda: tc.DenseCapsules(6, 3, 4, 5, votes="factorized", normalize=True, iterations=1), row),
    "conv": (lambda: tc.ConvCapsules2d(2, 3, 16, 16, 3, 2, 1, votes="matrix", routing="em", iterations=2), grid),
    "conv-window": (lambda: tc.ConvCapsules2d(2, 3, 16, 4, 3, competition="window", iterations=2), grid),
    "conv-1d-masked": (lambda: tc.ConvCapsules1d(2, 3, 4, 4, 3, iterations=2), line),
    "conv-3d-dilated": (lambda: tc.ConvCapsules3d(2, 3, 4, 4, 2, 1, 1, 2, iterations=1), volume),
    "conv-transposed": (lambda: tc.ConvTransposeCapsules1d(2, 3, 4, 4, 2, 3, routing="em", iterations=2), line),
    "classes": (lambda: tc.ClassCapsules(2, 3, 16, 16, iterations=1), grid),
    "primary": (lambda: tc.PrimaryCapsules(3, 2, 4, 3, kind="matrix"), lambda: torch.randn(2, 3, 6, 6)),
}


def tensors(parts):
    return [part for part in parts if part is not None]


def in_double(inputs):
    if isinstance(inputs, torch.Tensor):
        return inputs.double()
    return tc.Capsules(inputs.poses.double(), inputs.activations.double(), inputs.mask)


def assert_equals_compiled(module, *inputs, backend="aot_eager"):
    """In float64, where the order of additions hides nothing. Gives the compiled module."""
    module, inputs = module.double(), [in_double(part) for part in inputs]
    torch.compiler.reset()
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    mine, other = tensors(module(*inputs)), tensors(compiled(*inputs))
    torch.testing.assert_close(other, mine, rtol=1e-9, atol=1e-11)
    gradients = []
    for result in (mine, other):
        module.zero_grad()
        sum(part.sum() for part in result if part.requires_grad).backward()
        gradients.append([parameter.grad.clone() for parameter in module.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-8, atol=1e-10)
    return compiled


@pytest.mark.parametrize(("name", "options"), ROUTING_CASES, ids=str)
def test_routing_compiles_in_one_graph(name, options):
    votes = torch.randn(2, 6, 3, 4, dtype=torch.float64, requires_grad=True)
    assert_equals_compiled(make_routing(name, options), votes, torch.rand(2, 6))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), ROUTING_CASES, ids=str)
def test_routing_with_three_iterations_compiles_in_one_graph(name, options):
    votes = torch.randn(2, 6, 3, 4, dtype=torch.float64, requires_grad=True)
    assert_equals_compiled(make_routing(name, options, iterations=3), votes, torch.rand(2, 6))


def test_every_routing_is_compiled():
    assert {name for name, _ in ROUTING_CASES} == set(tc.ROUTINGS)


def other_batches(given):
    """Twice the batch, and its first example."""
    one = given[:1] if isinstance(given, torch.Tensor) else tc.Capsules(*(p if p is None else p[:1] for p in given))
    twice = [torch.cat([p, p]) for p in ([given] if isinstance(given, torch.Tensor) else tensors(given))]
    return twice[0] if isinstance(given, torch.Tensor) else tc.Capsules(*twice), one


@pytest.mark.parametrize("case", LAYER_CASES)
def test_layer_compiles_in_one_graph_and_takes_another_batch_size(case):
    make, inputs = LAYER_CASES[case]
    layer, given = make(), inputs()
    compiled = assert_equals_compiled(layer, given)
    for batch in map(in_double, other_batches(given)):
        torch.testing.assert_close(tensors(compiled(batch)), tensors(layer(batch)), rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("case", LAYER_CASES)
def test_compiled_layer_takes_another_batch_size_in_single_precision(case):
    make, inputs = LAYER_CASES[case]
    layer, given = make(), inputs()
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for batch in (given, *other_batches(given)):
        torch.testing.assert_close(tensors(compiled(batch)), tensors(layer(batch)), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # torch's own, from its compiler
def test_dense_layer_equals_itself_compiled_to_native_code():
    layer, children = tc.DenseCapsules(6, 3, 4, 5), row()
    torch.compiler.reset()
    with torch.inference_mode():
        torch.testing.assert_close(torch.compile(layer, fullgraph=True)(children)[:2], layer(children)[:2])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, from its compiler
@pytest.mark.parametrize(("name", "options"), ROUTING_CASES, ids=str)
def test_routing_equals_itself_compiled_to_native_code(name, options):
    votes = torch.randn(2, 6, 3, 4, dtype=torch.float64, requires_grad=True)
    assert_equals_compiled(make_routing(name, options), votes, torch.rand(2, 6), backend="inductor")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, from its compiler
@pytest.mark.parametrize("case", LAYER_CASES)
def test_layer_equals_itself_compiled_to_native_code(case):
    make, inputs = LAYER_CASES[case]
    assert_equals_compiled(make(), inputs(), backend="inductor")


@pytest.mark.parametrize("case", LAYER_CASES)
def test_layer_runs_under_autocast(case):
    make, inputs = LAYER_CASES[case]
    layer, children = make(), inputs()
    with torch.autocast("cpu", dtype=torch.float16):
        parents = layer(children)
    assert parents.poses.isfinite().all()
    torch.testing.assert_close(parents.poses.float(), layer(children).poses, rtol=5e-2, atol=5e-2)
    parents.poses.sum().backward()


def test_inverse_temperature_can_rise_without_compiling_anew():
    routing = tc.make_routing("em", out_capsules=3)
    votes, activations = torch.randn(2, 6, 3, 4), torch.rand(2, 6)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(routing, fullgraph=True, backend=backend)
    cold = compiled(votes, activations).activations
    routing.inverse_temperature.fill_(1.0)
    hot = compiled(votes, activations).activations
    assert (hot - cold).abs().max() > 1e-2
    assert len(graphs) == 1


def test_a_compiled_layer_is_one_operator_that_keeps_torchs_rules():
    """So that tiles and kernels stay behind it: compilers would make all votes of a batch."""
    layer = tc.ConvCapsules2d(2, 3, 16, 16, 3, votes="matrix", routing="em", iterations=2)
    children = grid()
    poses, activations = children.poses.requires_grad_(), children.activations.requires_grad_()
    given = (poses, activations, None, parameters_of(layer), layer._handle)
    torch.library.opcheck(torch.ops.torchcaps.route.default, given)
    graphs = []

    def backend(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    torch.compiler.reset()
    torch.compile(layer, fullgraph=True, backend=backend)(children)
    assert any("torchcaps.route" in target for target in graphs[0])
    assert len(graphs[0]) < 20  # votes, iterations and competition are not among them


def test_a_compiled_copy_of_a_layer_is_a_layer_of_its_own():
    layer = tc.DenseCapsules(6, 3, 4, 4, routing="em")
    other = copy.deepcopy(layer)
    other.routing.inverse_temperature.fill_(5.0)
    children = tc.Capsules(torch.randn(2, 6, 4), torch.rand(2, 6))
    torch.compiler.reset()
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")(children)
    torch.testing.assert_close(compiled.activations, other(children).activations)
    assert (compiled.activations - layer(children).activations).abs().max() > 1e-2


def test_layers_that_draw_or_are_exported_show_their_operations_to_the_compiler():
    layer = tc.DenseCapsules(6, 3, 4, 4, sampling=0.5)
    children = tc.Capsules(torch.randn(2, 6, 4), torch.rand(2, 6))
    assert not suits_operator(layer, layer.gather(children))
    assert suits_operator(layer.eval(), layer.gather(children))
    program = torch.export.export(layer, (children,))
    assert "torchcaps.route" not in str(program.graph)


def test_a_compiled_layer_computes_under_autocast_in_the_precision_of_its_weights():
    layer, encoder = tc.DenseCapsules(6, 3, 4, 4), torch.nn.Linear(4, 4)

    def answer(inputs):
        with torch.autocast("cpu", dtype=torch.float16):
            poses = encoder(inputs)
            return layer(tc.Capsules(poses, tc.length(poses))).poses

    inputs = torch.randn(2, 6, 4)
    torch.compiler.reset()
    found = torch.compile(answer, fullgraph=True, backend="aot_eager")(inputs)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, answer(inputs), rtol=2e-2, atol=2e-3)
    found.sum().backward()
    assert encoder.weight.grad.isfinite().all()
