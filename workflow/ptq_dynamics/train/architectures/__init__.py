"""Architectures of models, one module each, which says what a fresh model of it is set to.

A module has as `Settings` a dataclass of `settings.py`, and a function `config` that makes of it
the configuration of transformers' own class. What a checkpoint on disk is, it says itself.
"""
