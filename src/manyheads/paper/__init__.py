"""The paper's tables and figures, measured on this machine, with the paper's own numbers beside ours."""
