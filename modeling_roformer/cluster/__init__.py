"""Work spread over machines by [Ray](https://www.ray.io), for the option `--ray`. It needs the extra `ray`."""
