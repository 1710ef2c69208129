"""Metrics of several processes as those of one server."""

from collections.abc import Sequence


def merge_metrics(texts: Sequence[str]) -> str:
    """Add up metrics in the text format of Prometheus, which all have the same metrics in the same order.

    Values with the same name and labels are added; of times of creation the earliest is kept.
    """
    families: dict[str, dict[str, float]] = {}  # samples by the comments before them
    for text in texts:
        comments = ""
        in_comments = False
        for line in text.splitlines():
            if line.startswith("#"):
                comments = f"{comments}{line}\n" if in_comments else f"{line}\n"
                in_comments = True
                continue
            in_comments = False
            name, _, number = line.rpartition(" ")
            samples, value = families.setdefault(comments, {}), float(number)
            if name.partition("{")[0].endswith("_created"):
                samples[name] = min(value, samples.get(name, value))
            else:
                samples[name] = samples.get(name, 0.0) + value
        families.setdefault(comments, {})
    return "".join(
        comments + "".join(f"{name} {value!r}\n" for name, value in samples.items())
        for comments, samples in families.items()
    )
