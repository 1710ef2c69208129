"""Sequence-level knowledge distillation (Kim and Rush 2016), in stages that a stopped command goes on with.

text -> translations -> pairs -> data -> student -> model (int8) -> report and model card
"""
