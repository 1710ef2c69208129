"""Documents: texts in, translations out, layout kept. `document.read_document` reads every format."""
