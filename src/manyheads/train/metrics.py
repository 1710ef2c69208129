"""The metrics of a log entry, formatted for people."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

METRIC_FORMATS = {
    "loss": "loss {:.3f}",
    "perplexity": "perplexity {:.2f}",
    "learning_rate": "lr {:.2e}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "mfu": "MFU {:.0%}",
    "bleu": "BLEU {:.2f}",
}


def format_metrics(metrics: Mapping[str, Any]) -> str:
    texts = [
        text.format(metrics[key]) for key, text in METRIC_FORMATS.items() if metrics.get(key) is not None
    ]
    if (seconds := metrics.get("seconds_left")) is not None:
        texts.append(f"{timedelta(seconds=round(seconds))} left")
    return "  ".join(texts)


def format_validation(metrics: Mapping[str, Any]) -> str:
    text = f"perplexity {metrics['perplexity']:.2f}"
    if "bleu" not in metrics:
        return text
    return f"{text}, BLEU {metrics['bleu']:.2f} ({metrics['signature']})"
