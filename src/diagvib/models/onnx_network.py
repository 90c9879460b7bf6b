"""A frozen network run by ONNX Runtime, which is faster on a processor than PyTorch, because it fuses
convolutions, batch norms and activations (benchmarks/README.md, "Encoding")."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from diagvib.foundation.errors import DiagvibError
from diagvib.foundation.plug_ins import reason


class OnnxNetwork:
    """A function of inputs float32[N, ...], N <= batch, computed as ONNX Runtime does it on the CPU.

    It is exported when it is called first, for parts of `batch` inputs; a shorter part is padded.
    DiagvibError if the packages are missing or the network cannot be exported.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], batch: int, threads: int):
        self.function, self.batch, self.threads = function, batch, threads
        self._session = None

    def __call__(self, inputs: Tensor) -> Tensor:
        part = inputs.new_zeros(self.batch, *inputs.shape[1:])
        part[: len(inputs)] = inputs
        if self._session is None:
            with torch.inference_mode(False), torch.no_grad():
                self._session = self._export(torch.zeros(part.shape))
        (outputs,) = self._session.run(None, {self._session.get_inputs()[0].name: part.numpy()})
        return torch.from_numpy(outputs)[: len(inputs)]

    def _export(self, example: Tensor):
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
            program = torch.onnx.export(
                _Module(self.function).eval(), (example,), dynamo=True, verbose=False
            )
            model = program.model_proto.SerializeToString()
            return onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        except Exception as error:  # the exporter may raise anything
            while error.__cause__:  # the first names the operation that is missing
                error = error.__cause__
            raise DiagvibError(
                f"model.runtime: the network cannot be run by onnxruntime ({reason(error)}); leave "
                "the key out"
            ) from None


class _Module(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(inputs)
