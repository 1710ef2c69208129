"""Model folders in repositories of the Hugging Face Hub: `manyheads push` and `manyheads pull`.

A repository has the files of the model folder under their own names, and its card as README.md. Nothing else
in this package uses the network, and nothing is fetched unless one of these commands is called.
"""
