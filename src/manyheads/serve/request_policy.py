"""The confidence policy of a request."""

from collections.abc import Sequence

from manyheads.confidence_policy import DEFAULT_MIN_CONFIDENCE, ConfidencePolicy
from manyheads.errors import RequestError
from manyheads.serve.schemas import FileRequest, TranslateRequest
from manyheads.serve.served_model import ServedModel
from manyheads.translation import Translation


def create_policy(query: TranslateRequest | FileRequest) -> ConfidencePolicy | None:
    """Return the policy of a request; None if it has none."""
    if query.min_confidence is None and query.below is None:
        return None
    threshold = DEFAULT_MIN_CONFIDENCE if query.min_confidence is None else query.min_confidence
    return ConfidencePolicy(threshold, query.below or "keep")


def check_calibration(models: Sequence[ServedModel | None]) -> None:
    for model in models:
        if model is not None and not model.is_calibrated:
            raise RequestError(
                f"min_confidence and below need a calibrated model, but {model.name} is not: run manyheads "
                f"calibrate"
            )


def choose_text(translation: Translation, query: TranslateRequest, policy: ConfidencePolicy | None) -> str:
    """Return the text that a policy chooses. The blocks of HTML have been chosen one by one."""
    if policy is None or query.format == "html":
        return translation.text
    return policy.choose_text(translation)
