"""Every error Stoker raises, and who is at fault.

::

    StokerError
    ├── ConfigError (ValueError)          the pipeline or an argument is wrong; nothing has run yet
    │   └── ArgumentError (TypeError)     a method does not have such an argument
    ├── MissingExtra (ImportError)        an optional package is not installed
    ├── SourceNotFound (FileNotFoundError)   the data set does not exist
    ├── SourceEmpty (ValueError)          the data set exists, but has no samples
    ├── ShardError                        a shard or its index is bad as a whole: `shard` and `offset` say where
    │   ├── CorruptShard (ValueError)     its bytes contradict its format
    │   ├── ShardChanged (ValueError)     it differs from its index, or from an earlier read
    │   └── CorruptIndex (ValueError)     its index is damaged, or was written by a later version
    ├── RemoteError (OSError)             a URL could not be fetched; `url` and `status` say which and why
    ├── WriteError (OSError)              something could not be written; nothing half-written remains
    ├── SampleError                       one sample is bad: `key`, `origin` and `position` say which, `stage` what found it
    │   ├── ReadError (OSError)           its bytes could not be read, or do not fit into memory
    │   ├── RecordError (ValueError)      its bytes do not match their checksum, or a field of it cannot be decoded or split
    │   ├── ImageError (ValueError)       its image could not be decoded
    │   │   ├── CorruptImage              the bytes contradict the format
    │   │   ├── TruncatedImage            the bytes end too early
    │   │   ├── UnsupportedImage          a format that cannot be decoded
    │   │   └── ImageTooLarge             more pixels or scans than allowed, or than fit into memory
    │   ├── BoxError (ValueError)         its box contains no pixel
    │   ├── AnnotationError (ValueError)  its annotation could not be read
    │   ├── FunctionError (RuntimeError)  the user's function raised; the cause is the original
    │   └── WorkerError (RuntimeError)    the process that worked on it ended repeatedly
    ├── BatchError (ValueError)           rows that cannot become one batch
    ├── DataLossError (RuntimeError)      more samples were bad than `on_error` allows
    ├── StateError (ValueError)           a saved state that does not belong here
    ├── StallError (TimeoutError)         nothing moved for `watchdog_s` seconds
    ├── ClosedError (RuntimeError)        a loader or iterator used after its end
    ├── WorkerRefused (RuntimeError)      the trainer refused this remote worker; the message says what differs
    ├── DeviceError (RuntimeError)        a GPU cannot be used for decoding: its driver or compiler says why
    └── KernelError (RuntimeError)        the native library is missing, or refused a call: a bug in Stoker

An error of a single sample can be skipped with ``pipeline.on_error("skip")``; the others cannot.
"""

from __future__ import annotations

#: how messages name a remedy that every pipeline has
SKIP = "skip it with .on_error('skip')"


class StokerError(Exception):
    """The root of all errors raised by Stoker."""


class ConfigError(StokerError, ValueError):
    """The pipeline or an argument is wrong; nothing has run yet."""


class ArgumentError(ConfigError, TypeError):
    """A method does not have such an argument, or lacks one; the message names what was probably meant."""


class MissingExtra(StokerError, ImportError):
    """An optional package is not installed; the message names the ``pip install``."""


class SourceNotFound(StokerError, FileNotFoundError):
    """The data set does not exist."""


class SourceEmpty(StokerError, ValueError):
    """The data set exists, but has no samples."""


class ShardError(StokerError):
    """A shard or its index is bad as a whole; `shard` names it, `offset` is the byte at which it shows (None: no single one)."""

    def __init__(self, message: str, *, shard: str = "", offset: int | None = None) -> None:
        super().__init__(message)
        self.shard = shard
        self.offset = offset


class CorruptShard(ShardError, ValueError):
    """The shard's bytes contradict its format."""


class ShardChanged(ShardError, ValueError):
    """The shard differs from its index, or from an earlier read."""


class CorruptIndex(ShardError, ValueError):
    """The shard's index is damaged, or was written by a later version."""


class RemoteError(StokerError, OSError):
    """A URL could not be fetched; `url` never contains a secret, `status` is the HTTP status if there was one.

    `moved`: the server sent some of the requested bytes, so other places of the file may be readable.
    """

    def __init__(self, message: str, *, url: str = "", status: int | None = None, moved: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.url = url
        self.status = status
        self.moved = moved

    def __str__(self) -> str:
        return self.message


class WriteError(StokerError, OSError):
    """Something could not be written; nothing half-written remains."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class SampleError(StokerError):
    """One sample is bad.

    `key` names the sample, `origin` the place it is stored, `index` is its number in its source and `position` its place in the
    epoch (None until it has one); `stage` is the step of the pipeline that found it bad, as `stats().steps_s` names it, "send"
    where a value of it could not be sent from its worker process, or "worker" where it ended that process.
    """

    index: int | None = None
    stage: str = ""

    def __init__(self, message: str, *, key: str = "", origin: str = "", position: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.key = key
        self.origin = origin
        self.position = position

    def __str__(self) -> str:
        return self.message


class ReadError(SampleError, OSError):
    """The sample's bytes could not be read."""


class RecordError(SampleError, ValueError):
    """The sample's bytes do not match their checksum, or a field of it cannot be decoded or split."""


class ImageError(SampleError, ValueError):
    """The sample's image could not be decoded."""


class CorruptImage(ImageError):
    """The image's bytes contradict its format."""


class TruncatedImage(ImageError):
    """The image's bytes end before the image does."""


class UnsupportedImage(ImageError):
    """Neither the kernel nor Pillow decodes this."""


class ImageTooLarge(ImageError):
    """More pixels or scans than the limits allow, refused before memory was allocated; or more than fit into memory."""


class BoxError(SampleError, ValueError):
    """The sample's box contains no pixel of its image."""


class AnnotationError(SampleError, ValueError):
    """The sample's annotation could not be read."""


class FunctionError(SampleError, RuntimeError):
    """The user's function raised on this sample; ``__cause__`` is the original, with its traceback."""


class WorkerError(SampleError, RuntimeError):
    """The processes that worked on this sample ended repeatedly; the message says how.

    If samples cannot be told apart, as in a function that gets a whole batch, it names all of them, and `key` is empty.
    """


class BatchError(StokerError, ValueError):
    """Rows that cannot become one batch."""


class DataLossError(StokerError, RuntimeError):
    """More samples were bad than the pipeline's ``on_error`` policy allows."""


class StateError(StokerError, ValueError):
    """A saved state that does not belong to this pipeline, or is damaged."""


class StallError(StokerError, TimeoutError):
    """Nothing moved for ``watchdog_s`` seconds; the message holds every worker's stack."""


class ClosedError(StokerError, RuntimeError):
    """A loader or an iterator was used after its end."""


class WorkerRefused(StokerError, RuntimeError):
    """A trainer does not take this remote worker, or a pool this trainer; the message says what differs."""


class DeviceError(StokerError, RuntimeError):
    """A GPU cannot be used for decoding; the message has the name that its driver or compiler gives to the reason."""


class KernelError(StokerError, RuntimeError):
    """The native library is missing, or refused a call it should have taken."""


def message_of(error: BaseException, limit: int = 500) -> str:
    """What an exception says, at most about `limit` characters of it; also of one that fails to say it."""
    try:
        text = str(error)
    except Exception as fault:  # noqa: BLE001  a message that cannot be had must not hide the error
        text = f"(its message raised {type(fault).__name__})"
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)"
