"""Models of the Hugging Face Hub by name: `ORG/NAME` or `ORG/NAME@REVISION`, in place of the folder of a checkpoint.

`huggingface_hub` fetches them into its cache and obeys its variables: `HF_HOME`, `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`. A
path that exists is never a name. Only the files that cloze reads are fetched, pickles only if a model has no safetensors. Code of
a repository is neither fetched nor run. No server is asked, and `huggingface_hub` is not imported, before a name is used.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloze.errors import CheckpointError, ClozeError

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
#: What cloze reads of a repository: configs, tokenizers, modules of sentence-transformers, its own files, and weights.
_READ = (
    "*.json", "*.txt", "*.model", "*.spm", "cloze/*", "model*.safetensors", "adapter_model.safetensors",
    "[0-9]_*/model.safetensors", "[0-9]_*/pytorch_model.bin",
)  # fmt: skip
_LATER_MODULE = re.compile(r"[1-9]\d*_")  # folders of modules of sentence-transformers that follow the network
_PICKLES = ("pytorch_model*.bin", "adapter_model.bin")
_UNREAD = ("onnx/*", "openvino/*", "coreml/*", "checkpoint-*/*")
_REFUSED = "Log in with an account that may do this: hf auth login"
_LATER = "Rerun the command later; it resumes where it stopped."
_FILE = re.compile(r"\.(py|ya?ml|jsonl?|[ct]sv|txt|bin|vec|gz|xz|bz2|zst|np[yz]|h5|hdf5|parquet|safetensors|onnx|ftz|model)$")
_SNAPSHOT = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)/snapshots/(?P<commit>[0-9a-f]{40})(/|$)")


def is_name(text: str | Path) -> bool:
    """Whether this is a model's name on the hub: no path that exists, and none into a folder that exists."""
    name = str(text)
    if _NAME.fullmatch(name) is None or _FILE.search(name):
        return False
    return not os.path.lexists(name) and not Path(name.partition("@")[0]).parent.exists()


def name_of(folder: Path) -> str | None:
    """`ORG/NAME@COMMIT` of a folder in the cache of the hub; None for any other folder."""
    match = _SNAPSHOT.search(folder.as_posix())
    return None if match is None else f"{match['owner']}/{match['name']}@{match['commit']}"


def local_folder(checkpoint: str | Path) -> Path:
    """The folder of a checkpoint: the path itself, or for a name on the hub the folder in the cache, fetched if it is not there.

    Raises:
        CheckpointError: The model cannot be fetched: there is none of this name or revision, its terms were not accepted, the
            server does not answer, the disk is full.
    """
    if not is_name(checkpoint):
        return Path(checkpoint)
    name, _, revision = str(checkpoint).partition("@")
    absent = (
        "there is no such folder, and no such model on the Hugging Face Hub, or it is private.\n"
        "  Check the path or the name; for a private model, run: hf auth login"
    )
    with explained(HubRequest(name, revision or "main", absent)):
        return _snapshot(name, revision or None)


def _snapshot(name: str, revision: str | None) -> Path:
    """The folder of a model in the cache, with everything in it that cloze reads; pickles if its network has no other weights,
    even if modules that follow it have safetensors (`2_Dense/model.safetensors`)."""
    from huggingface_hub import snapshot_download

    for patterns in (_READ, (*_READ, *_PICKLES)):
        folder = snapshot_download(name, revision=revision, allow_patterns=list(patterns), ignore_patterns=list(_UNREAD))
        weights = (path.relative_to(folder) for path in Path(folder).glob("**/*.safetensors"))
        if not all(_LATER_MODULE.match(path.parts[0]) for path in weights):
            break
    return Path(folder)


def publish(folder: Path, name: str, *, public: bool = False) -> str:
    """Upload the files of a folder as the model `ORG/NAME` of the hub, and return its address.

    A model that is not there is created, private unless it is to be `public`. One that is there gets a commit with these files.

    Raises:
        CheckpointError: This is no name of a model, nobody is logged in, or the user may not write there.
    """
    if _NAME.fullmatch(name) is None or "@" in name:
        raise CheckpointError(f"{name}: expected ORG/NAME, the owner and the name of a model on the Hugging Face Hub.")

    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        raise CheckpointError(f"{name}: cannot be uploaded while HF_HUB_OFFLINE is set.")

    with explained(HubRequest(name, "main", f"there is no such owner or model, or you may not write there. {_REFUSED}")):
        address = HfApi().create_repo(name, private=not public, exist_ok=True)
        HfApi().upload_folder(repo_id=name, folder_path=folder, commit_message="Upload a model of cloze")
        return str(address)


@dataclass(frozen=True)
class HubRequest:
    """What is asked of the hub, for messages: a repository and its revision, what to say if there is none (`absent`) or if no
    server may be asked (`offline`; None: the cache of models is named), the path of its page, and the type of the error."""

    name: str
    revision: str
    absent: str
    offline: str | None = None
    page: str = ""
    error: type[ClozeError] = CheckpointError


@contextmanager
def explained(request: HubRequest) -> Iterator[None]:
    """Everything that can go wrong between here and the hub becomes a sentence with the way out."""
    from huggingface_hub import constants, errors

    server = constants.ENDPOINT
    page = f"{server}/{request.page or request.name}"
    try:
        yield
    except errors.GatedRepoError:
        text = f"is gated: accept the terms at {page}, then run: hf auth login"
    except errors.RevisionNotFoundError:
        text = f"has no branch, tag or commit {request.revision!r}. {page} lists them."
    except errors.RepositoryNotFoundError:
        text = request.absent
    except errors.HFValidationError as error:
        text = f"is not a valid name: {str(error).splitlines()[0]}"
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        text = _absent(server, error) if request.offline is None else request.offline
    except errors.HfHubHTTPError as error:
        text = f"{server} answered with {_status(error)}. {_way_out(error)}"
    except json.JSONDecodeError:
        text = f"{server} does not answer like a model hub. Check HF_ENDPOINT."
    except errors.HTTPError as error:  # of the connection
        text = f"the connection to {server} was interrupted ({error}). {_LATER}"
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            text = f"the connection to {server} was interrupted ({error}). {_LATER}"
        else:
            text = f"cannot be stored in {constants.HF_HUB_CACHE} ({error.strerror}). Set HF_HOME to a folder with space."
    else:
        return
    raise request.error(f"{request.name}: {text}")


def _status(error: HfHubHTTPError) -> str:
    return f"{error.response.status_code} {error.response.reason_phrase}".strip()


def _way_out(error: HfHubHTTPError) -> str:
    return _REFUSED if error.response.status_code in (401, 403) else _LATER


def _absent(server: str, error: Exception) -> str:
    """Why a model that is not in the cache cannot be fetched now."""
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError

    where = f"there is no such folder, and this model of the Hub is missing or incomplete in the cache ({constants.HF_HUB_CACHE})"
    if constants.HF_HUB_OFFLINE:
        return f"{where}, and HF_HUB_OFFLINE is set. Download it once while you are online."
    cause = error.__cause__
    if isinstance(cause, HfHubHTTPError):
        return f"{where}, and {server} answered with {_status(cause)}. {_way_out(cause)}"
    return f"{where}, and {server} cannot be reached. {_LATER}"
