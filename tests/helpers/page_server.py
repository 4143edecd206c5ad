"""Servers for the page: in a thread, and in a process."""

import re
import signal
import socket
import subprocess
import threading

import uvicorn


class PageServer:
    """Server of an application until `stop`."""

    def __init__(self, app):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.server = uvicorn.Server(uvicorn.Config(app, ws="none", log_level="critical"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]}, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.should_exit = self.server.force_exit = True
        self.thread.join(timeout=10)
        self.listening.close()


class PageProcess:
    """`PROGRAM page FOLDER --port 0` in a process, ready to serve."""

    def __init__(self, program, folder, log):
        self.log = log
        with open(log, "w") as errors:
            command = [*program, "page", str(folder), "--port", "0"]
            self.process = subprocess.Popen(command, cwd=log.parent, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.said = self.process.stdout.readline()
        found = re.search(r"http://\S+:\d+", self.said)
        assert found, log.read_text()
        self.address = found[0]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=900)
