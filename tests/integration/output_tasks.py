"""Tasks that print and log in every way that user code and libraries do."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import threading
import warnings

from holdfast import Retry, task

ONCE = Retry(max_attempts=1)


@task("output.everything", retry=ONCE)
def everything(word: str) -> str:
    print(f"printed {word}")
    print(f"to stderr {word}", file=sys.stderr)
    logging.info("informed %s", word)  # noqa: LOG015
    logging.getLogger("shop.orders").warning("warned %s", word)
    warnings.warn(f"doubtful {word}", stacklevel=1)
    subprocess.run(["sh", "-c", f"echo started {word}"], check=True)
    os.write(2, f"written {word}\n".encode())
    thread = threading.Thread(target=lambda: print(f"threaded {word}"))
    thread.start()
    thread.join()
    sys.stdout.buffer.write(f"bytes {word}\n".encode())
    print(f"begun {word}", end="")
    return word


@task("output.trouble", retry=ONCE)
def trouble() -> None:
    try:
        raise ValueError("cannot reach postgresql://me:hunter2@db/x")
    except ValueError:
        logging.getLogger("shop").exception("it failed with token=abc123")
    thread = threading.Thread(target=_explode, name="exploding")
    thread.start()
    thread.join()
    raise ConnectionError("postgresql://me:hunter2@db:5432/x?sslpassword=swordfish refused\x1b[2J")


def _explode() -> None:
    raise LookupError("in a thread")


SECRETS = (
    '{"password": "hunter2"}',
    "{'api_token': 'hunter2'}",
    "password: hunter2",
    "Authorization: Bearer hunter2",
)


@task("output.secrets", retry=ONCE)
def secrets() -> None:
    """Print secrets in every way, and finally raise them in an error."""
    for text in SECRETS:
        print(text)
        logging.getLogger("shop").warning(text)
        subprocess.run(["sh", "-c", 'echo "$0"', text], check=True)
    raise RuntimeError("\n".join(SECRETS))


@task("output.swap", retry=ONCE)
def swap() -> None:
    """Replace the streams and never restore them."""
    sys.stdout = io.StringIO()
    sys.stderr = None  # type: ignore[assignment]


@task("output.crash", retry=ONCE)
def crash() -> None:
    import faulthandler

    print("about to crash")
    faulthandler.enable()
    os.abort()


@task("output.inline", retry=ONCE, executor="inline")
def inline(word: str) -> str:
    print(f"printed {word}")
    logging.getLogger("shop").info("informed %s", word)
    return word
