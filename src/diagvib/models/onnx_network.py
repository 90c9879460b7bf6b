"""A frozen network run by ONNX Runtime, which is faster on a processor than PyTorch, because it fuses
convolutions, batch norms and activations (benchmarks/README.md, "Encoding")."""

from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version

import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.files import alone, cache_folder, text_sha256, whole_file
from diagvib.foundation.plug_ins import reason


class OnnxNetwork:
    """A function of inputs float32[N, ...], N <= batch, computed as ONNX Runtime does it on the CPU.

    It is exported when it is called first, for parts of `batch` inputs; a shorter part is padded.
    With `identity`, a text with everything besides the inputs' shape that decides what is exported,
    the export is kept in the user's cache for other jobs. DiagvibError if the packages are missing
    or the network cannot be exported.
    """

    def __init__(
        self, function: Callable[[Tensor], Tensor], batch: int, threads: int, identity: str = ""
    ):
        self.function, self.batch, self.threads = function, batch, threads
        self.identity = identity
        self._session = None

    def __call__(self, inputs: Tensor) -> Tensor:
        part = inputs.new_zeros(self.batch, *inputs.shape[1:])
        part[: len(inputs)] = inputs
        if self._session is None:
            self._session = self._loaded(part.shape)
        (outputs,) = self._session.run(None, {self._session.get_inputs()[0].name: part.numpy()})
        return torch.from_numpy(outputs)[: len(inputs)]

    def _loaded(self, shape: torch.Size):
        try:
            import onnxruntime
            import onnxscript  # noqa: F401, for torch.onnx
        except ImportError:
            raise DiagvibError(
                "model.runtime: onnxruntime is not installed; `pip install onnxruntime onnxscript`, "
                "or leave the key out"
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        try:
            model = self._cached(shape) if self.identity else self._exported(shape)
            return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        except DiagvibError:
            raise
        except Exception as error:  # the exporter may raise anything
            while error.__cause__:  # the first names the operation that is missing
                error = error.__cause__
            raise DiagvibError(
                f"model.runtime: the network cannot be run by onnxruntime ({reason(error)}); leave "
                f"the key out, or delete {cache_folder() / 'onnx'} if a file there is damaged"
            ) from None

    def _cached(self, shape: torch.Size) -> bytes:
        """The export from the cache; of several jobs, one makes it. Where nothing can be kept, each
        does."""
        packages = [f"{name} {version(name)}" for name in ("torch", "onnxscript", "onnxruntime")]
        name = text_sha256(repr([self.identity, [*shape], packages]))
        path = cache_folder() / "onnx" / f"{name}.onnx"
        with alone(path):
            if path.is_file():
                return path.read_bytes()
            exported = self._exported(shape)
            with suppress(OSError), whole_file(path) as temporary:
                temporary.write_bytes(exported)
            return exported

    def _exported(self, shape: torch.Size) -> bytes:
        with torch.inference_mode(False), torch.no_grad():
            program = torch.onnx.export(
                _Module(self.function).eval(), (torch.zeros(shape),), dynamo=True, verbose=False
            )
            return program.model_proto.SerializeToString()


class _Module(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(inputs)
