"""Eddy's errors, and its warning: each message says what is wrong, the offending value, and what to do next."""

from __future__ import annotations


class EddyError(Exception):
    """Base class of every error that Eddy raises on purpose."""


class UnsupportedModel(EddyError):
    """The model's architecture cannot be run exactly; the message names the class and the reason."""


class ModelNotFound(EddyError):
    """No model of that name or at that path, or its files are incomplete; `eddy models` lists what is there."""


class InterventionDidNotRun(EddyError):
    """An intervention ran fewer or more times than the method requires; no vector is returned."""


class TextTooLong(EddyError):
    """A text exceeds the window and the embedder may not cut it or read it in windows."""


class MethodCollapse(UserWarning):
    """A warning: the method's vectors hardly tell texts apart on this model."""


class InvalidText(EddyError, ValueError):
    """A text cannot be embedded: blank, not a string, or not valid Unicode."""


class UnknownMethod(EddyError, ValueError):
    """No method of that name is registered."""


class InvalidParameter(EddyError, ValueError):
    """A parameter has an unknown name or a value outside its range."""


class IncompatibleMethods(EddyError, ValueError):
    """Two methods set the same part, or a method cannot give what was asked of it."""


class NotFinite(EddyError):
    """A vector holds NaN or infinity; the message names the text."""


class ZeroVector(EddyError):
    """A vector is all zeros, which points nowhere and is similar to nothing; the message names the text."""


class MissingExtra(EddyError, ImportError):
    """A class or command needs packages of an extra that is not installed."""


class FingerprintMismatch(EddyError):
    """Stored vectors were made by another model, method or setting than the one now in use."""
