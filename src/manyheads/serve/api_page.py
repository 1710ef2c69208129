"""The page /docs: the OpenAPI description as HTML, without scripts and without other servers."""

import json
import re
from html import escape
from typing import Any

HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Manyheads API</title>
<link rel="stylesheet" href="/look/attention.css">
<link rel="stylesheet" href="/server.css">
<link rel="icon" href="/icon.svg">
</head>
<body class="page">
<main class="api">
"""


def render_api_page(description: dict[str, Any]) -> str:
    """Return a page with every operation: its fields, its answers, and their schemas as JSON."""
    info = description["info"]
    parts = [
        HEAD,
        f"<h1>{escape(info['title'])} API</h1>\n<p>{escape(info['description'])}</p>\n",
        '<p>For programs: <a href="/spec">/spec</a>, in OpenAPI. To try it: <a href="/">the page</a>.</p>\n',
        "<p>Fields may be sent as JSON, as a form or in the query string.</p>\n",
    ]
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            parts.append(render_operation(method, path, operation))
    parts.append("<h2>Schemas</h2>\n")
    for name, schema in description.get("components", {}).get("schemas", {}).items():
        code = escape(json.dumps(schema, ensure_ascii=False, indent=1))
        parts.append(f'<h3 id="{escape(name)}">{escape(name)}</h3>\n<pre>{code}</pre>\n')
    return "".join([*parts, "</main>\n</body>\n</html>\n"])


def render_operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"<h2>{method.upper()} <code>{escape(path)}</code></h2>\n"]
    content = operation.get("requestBody", {}).get("content", {})
    if content:
        schema = next(iter(content.values()))["schema"]
        required = schema.get("required", [])
        rows = [
            f"<tr><th scope='row'><code>{escape(name)}</code></th><td>{escape(describe_type(field))}"
            f"{', required' if name in required else ''}</td>"
            f"<td>{escape(field.get('description', ''))}</td></tr>\n"
            for name, field in schema["properties"].items()
        ]
        heading = "<tr><th scope='col'>field</th><th scope='col'>type</th><th scope='col'>meaning</th></tr>\n"
        parts.append(f"<table>\n{heading}{''.join(rows)}</table>\n<p>{escape(', '.join(content))}</p>\n")
    parts.append("<ul>\n")
    for status, response in operation["responses"].items():
        parts.append(f"<li>{escape(status)}: {escape(response['description'])}{link_schema(response)}</li>\n")
    return "".join([*parts, "</ul>\n"])


def describe_type(field: dict[str, Any]) -> str:
    """Return the type of a field in words, such as `string or array`."""
    options = field.get("anyOf", [field])
    names = [option.get("type", "value") for option in options]
    if field.get("enum"):
        names = [", ".join(map(str, field["enum"]))]
    return " or ".join(name for name in dict.fromkeys(names) if name != "null")


def link_schema(response: dict[str, Any]) -> str:
    """Return links to the schemas of a response."""
    names = dict.fromkeys(re.findall(r"#/components/schemas/(\w+)", json.dumps(response)))
    links = ", ".join(f'<a href="#{name}">{name}</a>' for name in names)
    return f" ({links})" if links else ""
