"""The command `models`."""

import json

from manyheads.cli.app import app
from manyheads.cli.options import AsJson


@app.command()
def models(as_json: AsJson = False) -> None:
    """List the models that can be called by a name: those installed with the package, and your own.

    Your own are the model folders in MANYHEADS_MODELS, by default ~/.local/share/manyheads/models on Linux.
    One of yours replaces an installed one of the same name.

    \b
    Example:
      manyheads models --json
    """
    from manyheads.named_models.listing import format_models, summarize_models

    summaries = summarize_models()
    if as_json:
        print(json.dumps([summary.to_dict() for summary in summaries], ensure_ascii=False, indent=1))
    else:
        print(format_models(summaries))
