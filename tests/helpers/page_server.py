"""A server for the page in a thread."""

import socket
import threading

from modeling_roformer.serving.page.connection import server_of


class PageServer:
    """Server of an application until `stop`; `options` are those of `server_of`."""

    def __init__(self, app, **options):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.server = server_of(app, **{"waiting": 64} | options)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]}, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.should_exit = self.server.force_exit = True
        self.thread.join(timeout=10)
        self.listening.close()

    def connect(self) -> socket.socket:
        """Connect to the server, with a timeout of ten seconds."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)
