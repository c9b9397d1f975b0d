"""Predictions with their provenance: a small client on top of NVIDIA's tritonclient.

It needs the extra `client`, as in `pip install 'parapet[client]'`. The same wheel has the programs.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal, Mapping, Sequence, Union, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Parameter = Union[bool, int, float, str]
Provenance = Literal["exact", "hedged", "backup", "reconstructed"]


@dataclass(frozen=True)
class Prediction:
    """The outputs of a model, and how the server came by them."""

    outputs: dict[str, Array]
    #: `exact` is the model's own prediction, and so is `hedged`, from a redundant copy of the query;
    #: `backup` is a backup model's; `reconstructed` is decoded from the query's coding group.
    provenance: Provenance
    #: From 0 to 1; `None` if the server does not know, or does not say.
    confidence: float | None
    #: The code that an approximation was decoded by.
    code: str | None
    #: All parameters of the response, those above among them.
    parameters: dict[str, Parameter]

    @property
    def is_approximate(self) -> bool:
        """True if the outputs are not the model's own."""
        return self.provenance in ("backup", "reconstructed")


class Client:
    """Client of a Parapet frontend, or of any server of the Open Inference Protocol v2."""

    def __init__(
        self,
        url: str,
        *,
        protocol: Literal["http", "grpc"] = "http",
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Connects to `url`, which is HOST:PORT.

        Each request has these `headers`, as an API key's. Options go to the `InferenceServerClient` of
        `tritonclient.http` or `tritonclient.grpc`, as `ssl=True`.
        """
        self._triton: Any = importlib.import_module(f"tritonclient.{protocol}")
        self._utils: Any = importlib.import_module("tritonclient.utils")
        self._headers = dict(headers or {})
        self._client = self._triton.InferenceServerClient(url, **options)

    def infer(
        self,
        model: str,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        outputs: Sequence[str] | None = None,
        version: str = "",
        allow_approximate: bool | None = None,
        deadline_ms: float | None = None,
        class_: str | None = None,
        parameters: Mapping[str, Parameter] | None = None,
    ) -> Prediction:
        """Returns the prediction for `inputs`, whose first axis is the batch; for all outputs, or those named.

        Raises tritonclient's `InferenceServerException` if there is none, as when the deadline has passed.

        allow_approximate: false for the model's own predictions alone
        class_: the request's class, one that the frontend's configuration knows
        parameters: others, for the instance
        """
        given: dict[str, Parameter] = dict(parameters or {})
        if allow_approximate is not None:
            given["allow_approximate"] = allow_approximate
        if class_ is not None:
            given["class"] = class_
        wanted = [self._triton.InferRequestedOutput(name) for name in outputs or ()]
        result = self._client.infer(
            model,
            [self._tensor(name, np.asarray(array)) for name, array in inputs.items()],
            model_version=version,
            outputs=wanted or None,
            timeout=None if deadline_ms is None else round(deadline_ms * 1000),
            headers=self._headers,
            parameters=given,
        )
        return _prediction(result)

    def _tensor(self, name: str, array: Array) -> Any:
        if array.dtype.kind == "U":
            array = array.astype(np.object_)
        datatype = self._utils.np_to_triton_dtype(array.dtype)
        if datatype is None:
            raise TypeError(f"{name}: no datatype of the protocol for {array.dtype}")
        tensor = self._triton.InferInput(name, list(array.shape), datatype)
        tensor.set_data_from_numpy(array)
        return tensor

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _prediction(result: Any) -> Prediction:
    response = result.get_response()
    if isinstance(response, dict):
        names = [output["name"] for output in response.get("outputs", ())]
        parameters = dict(response.get("parameters", {}))
    else:
        names = [output.name for output in response.outputs]
        choices = response.parameters.items()
        parameters = {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in choices}
    return Prediction(
        outputs={name: result.as_numpy(name) for name in names},
        # Other servers say nothing of provenance, and have one.
        provenance=cast(Provenance, parameters.get("provenance", "exact")),
        confidence=parameters.get("confidence"),
        code=parameters.get("code"),
        parameters=parameters,
    )
