"""The table of `docs/protocol.md`: every call of the SDKs' clients, and what comes of it at the frontend.

Calls and their parameters are found by introspection: one that has no argument here fails the run as not tried.
"""

import faulthandler
import inspect
import json
import pathlib
import re
import subprocess

PAGE = pathlib.Path(__file__).parents[2] / "docs/protocol.md"
MARKS = ("<!-- made by `cargo xtask interop --write` -->", "<!-- end of what is made -->")
# Seconds within which a call returns.
LIMIT = 5
# Clients with the same outcome, as one.
TOGETHER = {
    ("http", "grpc", "http.aio", "grpc.aio"): "tritonclient",
    ("http", "grpc", "http.aio", "grpc.aio", "REST", "GRPC"): "all",
}


class Surface:
    """The public methods of one client class.

    `arguments` has the values of parameters by name, or by `METHOD.NAME`; a value may be a `Ways`. `call` takes a
    method's name and its arguments, and returns a status and a text.
    """

    def __init__(self, client, methods, arguments, call):
        self.client, self.methods, self.arguments, self.call = client, methods, arguments, call

    def ways(self, method, name):
        """The arguments that a parameter gets, each as what it is called and the keyword arguments."""
        found = self.arguments.get(f"{method}.{name}", self.arguments.get(name))
        if found is None:
            raise AssertionError(f"{self.client}: {method}({name}) is not tried: give it a value")
        return list(found.items()) if isinstance(found, Ways) else [(name, {name: found})]

    def tries(self):
        """Each try as [client, method, parameter, status, text]: bare, then with each optional parameter alone."""
        tries = []
        for method, function in self.methods.items():
            bare, optional = {}, []
            for name, parameter in inspect.signature(function).parameters.items():
                if name == "self":
                    continue
                ways = self.ways(method, name)
                if parameter.default is inspect.Parameter.empty:
                    (_, first), *ways = ways
                    bare |= first
                optional += ways
            for label, given in [("", {}), *optional]:
                tries.append([self.client, method, label, *self.timed(method, bare | given)])
        return tries

    def timed(self, method, arguments):
        """Status and text of a call, which ends the run with its stack if it hangs."""
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        try:
            return self.call(method, arguments)
        except Exception as error:
            raise AssertionError(f"{self.client}: {method}({arguments}) fails in the client") from error
        finally:
            faulthandler.cancel_dump_traceback_later()


class Ways(dict):
    """Several tries of one parameter: what each is called, and its keyword arguments."""


def methods(client_class):
    members = inspect.getmembers(client_class, callable)
    return {name: function for name, function in members if not name.startswith("_")}


WORKS = ("", "works")


def refusal(status, text):
    """Status and text of a refusal, whose names are left out; it is one line, without address or stack."""
    assert not re.search(r"\d+\.\d+\.\d+\.\d+|\.rs:|\n|\|", text), text
    return str(status or "").removeprefix("StatusCode."), re.sub(r'"[^"]*"', "NAME", text)


def named(names):
    return ", ".join(f"`{name}`" for name in names)


def table(tries):
    """Markdown: calls of equal outcome share a row, and a parameter is named where it changes the outcome."""
    bare = {(client, method): text for client, method, label, _, text in tries if not label}
    statuses, clients, with_label, tried = {}, {}, {}, {}
    for client, method, label, status, text in tries:
        statuses.setdefault(text, {})[status] = True
        if not label:
            clients.setdefault((method, text), []).append(client)
            continue
        tried.setdefault(label, []).append((client, method))
        if text != bare[client, method]:
            with_label.setdefault((label, text), []).append((client, method))
    rows = {}
    for (method, text), those in clients.items():
        rows.setdefault((text, TOGETHER.get(tuple(those), named(those))), []).append(f"`{method}`")
    for (label, text), calls in with_label.items():
        if calls == tried[label]:
            rows.setdefault((text, "all with it"), []).append(f"`{label}`")
            continue
        for client, method in calls:
            rows.setdefault((text, named([client])), []).append(f"`{method}({label})`")
    lines = ["| client | call, or parameter | outcome |", "|---|---|---|"]
    for (text, who), calls in sorted(rows.items(), key=lambda row: (row[0][0] != WORKS[1], row[0])):
        status = ", ".join(filter(None, statuses[text]))
        lines.append(f"| {who} | {', '.join(calls)} | {f'{status}: {text}' if status else text} |")
    return "\n".join(lines)


def check(server, kserve, write):
    """Tries all of it, and compares the page, or writes it. `kserve` is the Python that has KServe's SDK."""
    import surface_triton

    script = pathlib.Path(__file__).with_name("surface_kserve.py")
    line = [kserve, "-B", script, server.http, server.grpc]
    kserve = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    versions, tries = zip(surface_triton.tried(server), json.loads(kserve))
    tries = [one for those in tries for one in those]
    before, mark, rest = PAGE.read_text().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    assert mark and end, f"{PAGE} lacks its marks"
    made = f"{before}{mark}\nOf {' and '.join(versions)}:\n\n{table(tries)}\n{end}{after}"
    if write:
        PAGE.write_text(made)
    is_current = PAGE.read_text() == made
    assert is_current, f"{PAGE} differs: run `cargo xtask interop --write`; its table is now\n{table(tries)}"
    print(f"{server.name}: {len(tries)} calls of two SDKs, as docs/protocol.md says")
