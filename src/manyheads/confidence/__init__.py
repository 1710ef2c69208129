"""How sure a model is of a translation: features, a calibrated probability, and detectors of failures.

`calibration` fits the probability at the end of training; `metrics` measures how good it is.
The package imports NumPy, but not torch.
"""
