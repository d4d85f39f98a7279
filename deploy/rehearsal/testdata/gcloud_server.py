"""Runs gcloud commands in processes forked from one that has loaded gcloud.

gcloud takes a second to load, and a deployment is some two hundred commands. The
forked processes run gcloud's own code, from its parser to its HTTP requests.

usage: gcloud_server.py SDK_ROOT SOCKET LOG; ends when its standard input ends

A client connects to SOCKET and sends {"args": [...], "cwd": "...", "env": {...}}
and a newline, with its three standard streams attached. The answer is the exit
code. The server appends each command to LOG as a line of JSON. Every name resolves
to 127.0.0.1, so that no request leaves this machine, and gcloud's pauses while it
waits for an operation are short.
"""

import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback

root, path, log = sys.argv[1:]
sys.argv = [os.path.join(root, "lib", "gcloud.py")]
sys.path[:0] = [os.path.join(root, "lib", "third_party"), os.path.join(root, "lib")]

resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: resolve("127.0.0.1", *rest, **more)

sleep = time.sleep
time.sleep = lambda seconds: sleep(min(seconds, 0.02))

from googlecloudsdk import gcloud_main  # noqa: E402, after the path is set
from googlecloudsdk.calliope import backend  # noqa: E402

cli = gcloud_main.CreateCLI([])


def preload(args):
    """Loads the command's code in this process, for all its children."""
    element = cli._TopElement()  # pylint: disable=protected-access
    for word in args:
        if element is None or isinstance(element, backend.Command) or word.startswith("-"):
            return
        element = element.LoadSubElement(word)


def parse(args):
    """Parses a command like gcloud does; raises an error if it is wrong."""
    element, rest = cli._TopElement(), list(args)  # pylint: disable=protected-access
    while rest and not isinstance(element, backend.Command):
        element = element.LoadSubElement(rest.pop(0))
        if element is None:
            raise ValueError("unknown command")
    if not isinstance(element, backend.Command):
        raise ValueError("a command group")
    element._parser.parse_args(rest, raise_error=True)  # pylint: disable=protected-access


def parse_all(commands):
    """Parses commands and prints the wrong ones."""
    wrong = 0
    for args in commands:
        try:
            parse(args)
        except BaseException as error:  # pylint: disable=broad-except
            wrong = 1
            print("gcloud", *args, "\n  ", error, file=sys.stderr)
    return wrong


def execute(connection, request, streams):
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    sys.argv[1:] = request["args"]
    code = 0
    try:
        if request.get("parse"):
            code = parse_all(request["parse"])
        else:
            gcloud_main.main(cli)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # pylint: disable=broad-except
        traceback.print_exc()
        code = 70
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            pass  # the reader has closed the stream
    with open(log, "a", encoding="utf-8") as lines:
        lines.write(json.dumps({"args": request["args"], "code": code}) + "\n")
    connection.sendall(str(code).encode())
    os._exit(0)


def serve(connection):
    data, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 20)
    request = json.loads(data)
    try:
        preload(request["args"])
    except Exception:  # pylint: disable=broad-except
        pass  # a wrong command: its own process reports it
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        execute(connection, request, streams)
    for stream in streams:
        os.close(stream)
    connection.close()


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as ready:
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    ready.register(listener, selectors.EVENT_READ)
    ready.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is sys.stdin:
                sys.exit()
            serve(listener.accept()[0])
