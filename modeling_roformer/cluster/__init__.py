"""Work spread over machines by [Ray](https://www.ray.io), for commands that take `--ray`. It needs the extra `ray`."""
