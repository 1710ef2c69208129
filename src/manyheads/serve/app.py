"""The ASGI application: routes, assets, error responses and middleware."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from manyheads.errors import ConfigError, ManyheadsError, RequestError
from manyheads.serve import schemas
from manyheads.serve.allowed_hosts import AllowedHosts, AllowedHostsMiddleware, AllowedOriginsMiddleware
from manyheads.serve.api_page import render_api_page
from manyheads.serve.correction_endpoints import CorrectionEndpoints
from manyheads.serve.deepl import DeepLEndpoints
from manyheads.serve.deepl_schemas import DeepLLanguage, DeepLTranslateRequest, DeepLTranslateResponse
from manyheads.serve.document_endpoints import DocumentEndpoints
from manyheads.serve.endpoints import Endpoints
from manyheads.serve.limits import ServerLimits
from manyheads.serve.middleware import BodyLimitMiddleware, RequestMiddleware
from manyheads.serve.queue import JobQueue
from manyheads.serve.responses import (
    INTERNAL_ERROR,
    ClientDisconnected,
    NanSafeJSONResponse,
    RequestRejected,
    TooManyNumbersError,
    format_error,
)
from manyheads.serve.served_model import ServedModel

MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
DESCRIPTION = (
    "The API of LibreTranslate, with scores, attention maps and a walk through a layer; "
    "and translation in the dialect of DeepL."
)


@dataclass(frozen=True)
class ServerApp:
    """The ASGI application, with what the HTTP protocol shares with it."""

    asgi: ASGIApp
    limits: ServerLimits
    queue: JobQueue
    record_request: Callable[[str, int, float], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.asgi(scope, receive, send)


def create_app(
    models: Sequence[ServedModel],
    limits: ServerLimits | None = None,
    allowed_hosts: AllowedHosts | None = None,
    document_folder: str | None = None,
    **options: Any,
) -> ServerApp:
    """Create the application. `options` are those of Endpoints.

    Translated documents are kept in a folder that front-end processes share, or in an own one.
    """
    endpoints = Endpoints(models, limits or ServerLimits(), **options)
    documents = DocumentEndpoints(endpoints, document_folder)

    @asynccontextmanager
    async def run_lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with endpoints.lifespan(app):
            yield
        documents.store.close()

    app = FastAPI(
        title="Manyheads", description=DESCRIPTION, version="1", docs_url=None, redoc_url=None,
        lifespan=run_lifespan, responses=schemas.ERROR_RESPONSES, redirect_slashes=False,
    )  # fmt: skip
    add_routes(app, endpoints, documents)
    add_assets(app)
    for error in (HTTPException, ManyheadsError, RequestRejected, ClientDisconnected):
        app.add_exception_handler(error, handle_error)
    app.add_exception_handler(Exception, handle_internal_error)
    stack = add_middleware(app, endpoints, allowed_hosts or AllowedHosts.for_host("127.0.0.1"))
    return ServerApp(stack, endpoints.limits, endpoints.queue, endpoints.record_request)


def add_middleware(app: FastAPI, endpoints: Endpoints, allowed_hosts: AllowedHosts) -> ASGIApp:
    """Wrap the application, from the inside out, so that every response passes all layers."""
    stack: ASGIApp = BodyLimitMiddleware(app, endpoints.limits, endpoints.queue)
    stack = AllowedOriginsMiddleware(
        stack,
        allow_origins=sorted(allowed_hosts.origins),
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type"],
    )
    stack = AllowedHostsMiddleware(stack, allowed_hosts)
    paths = [getattr(route, "path", "") for route in app.routes]
    return RequestMiddleware(stack, paths, endpoints.record_request)


def add_routes(app: FastAPI, endpoints: Endpoints, documents: DocumentEndpoints) -> None:
    def add(
        path: str,
        handler: Callable[[Request], Awaitable[Any]],
        response_schema: Any,
        request_schema: type[BaseModel] | None = None,
    ) -> None:
        """Responses are not validated against their schema at run time; tests do that."""

        async def endpoint(request: Request) -> Response:
            content = await handler(request)
            return content if isinstance(content, Response) else NanSafeJSONResponse(content)

        extra: dict[str, Any] | None = None
        if request_schema:
            codes = endpoints.registry.codes
            extra = schemas.describe_request_body(request_schema, endpoints.limits, codes)
        app.add_api_route(
            path,
            endpoint,
            methods=["POST" if request_schema else "GET"],
            name=path.strip("/"),
            response_model=None,
            responses={200: {"model": response_schema, "description": "Success."}},
            openapi_extra=extra,
        )

    corrections = CorrectionEndpoints(endpoints)
    add("/translate", endpoints.translate, schemas.TranslateResponse, schemas.TranslateRequest)
    add("/translate_file", documents.translate_file, schemas.FileResponse, schemas.FileRequest)
    add("/suggest", corrections.suggest, schemas.SuggestResponse, schemas.SuggestRequest)
    add("/suggest/undo", corrections.undo, schemas.SuggestResponse, schemas.UndoRequest)
    add("/detect", endpoints.detect, list[schemas.Detection], schemas.DetectRequest)
    add("/score", endpoints.score, schemas.ScoreResponse, schemas.ScoreRequest)
    add("/attention", endpoints.attention, schemas.AttentionResponse, schemas.AttentionRequest)
    add("/look", endpoints.look, schemas.LookResponse, schemas.LookRequest)
    add("/walk", endpoints.walk, schemas.WalkResponse, schemas.WalkRequest)
    add("/training", endpoints.training, list[schemas.TrainingRunInfo])
    add("/languages", endpoints.languages, list[schemas.LanguageInfo])
    add("/models", endpoints.models, list[schemas.ModelInfo])
    add("/glossaries", endpoints.list_glossaries, list[schemas.GlossaryInfo])
    add("/health", endpoints.health, schemas.HealthResponse)
    add("/frontend/settings", endpoints.settings, schemas.FrontendSettings)

    deepl = DeepLEndpoints(endpoints)
    add("/v2/translate", deepl.translate, DeepLTranslateResponse, DeepLTranslateRequest)
    add("/v2/languages", deepl.languages, list[DeepLLanguage])
    app.add_route("/download_file/{name}", documents.download_file, ["GET"], include_in_schema=False)
    add_description(app)
    add_monitoring(app, endpoints)


def add_monitoring(app: FastAPI, endpoints: Endpoints) -> None:
    async def head_health(request: Request) -> Response:
        return NanSafeJSONResponse(await endpoints.health(request))

    app.add_route("/health", head_health, ["HEAD"], include_in_schema=False)  # for uptime monitors

    async def metrics(request: Request) -> Response:
        endpoints.check_api_key(request)
        return Response(await endpoints.render_metrics(), media_type="text/plain; version=0.0.4")

    content = {"text/plain": {"schema": {"type": "string"}}}
    responses: dict[int | str, dict[str, Any]] = {200: {"content": content, "description": "For Prometheus."}}
    app.add_api_route("/metrics", metrics, name="metrics", response_class=Response, responses=responses)


def add_description(app: FastAPI) -> None:
    """Serve the description of the API for programs and for people, as LibreTranslate does."""

    async def serve_description(request: Request) -> Response:
        return NanSafeJSONResponse(app.openapi())

    async def serve_page(request: Request) -> Response:
        return Response(render_api_page(app.openapi()), media_type="text/html")

    app.add_route("/spec", serve_description, ["GET"], include_in_schema=False)
    app.add_route("/docs", serve_page, ["GET"], include_in_schema=False)


def add_assets(app: FastAPI) -> None:
    """Serve the files of serve/assets by name, index.html as /, and those of look/assets under /look/."""
    for package, prefix in (("manyheads.serve", "/"), ("manyheads.look", "/look/")):
        for file in files(package).joinpath("assets").iterdir():
            suffix = "." + file.name.rpartition(".")[2]
            is_template = suffix == ".html" and prefix != "/"
            if suffix in MEDIA_TYPES and not is_template:
                path = "/" if file.name == "index.html" else prefix + file.name
                endpoint = make_asset_endpoint(file.read_bytes(), MEDIA_TYPES[suffix])
                app.add_route(path, endpoint, ["GET"], include_in_schema=False)


def make_asset_endpoint(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def serve_asset(request: Request) -> Response:
        return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})

    return serve_asset


# ---- errors


async def handle_error(request: Request, error: Exception) -> Response:
    """Answer an error in the format of LibreTranslate."""
    if isinstance(error, HTTPException):
        headers = dict(error.headers or {})
        content = format_error(request.url.path, str(error.detail))
        return NanSafeJSONResponse(content, error.status_code, headers=headers)
    if isinstance(error, RequestRejected):
        return error.to_response(request.url.path)
    if isinstance(error, ClientDisconnected):
        return Response(status_code=499)  # which nobody reads
    if isinstance(error, TooManyNumbersError):
        return NanSafeJSONResponse({"error": str(error), "code": "too_many_numbers"}, 400)
    if isinstance(error, RequestError | ConfigError):
        return NanSafeJSONResponse(format_error(request.url.path, str(error)), 400)
    raise error


async def handle_internal_error(request: Request, error: Exception) -> Response:
    """RequestMiddleware logs the error, which Starlette raises again."""
    return NanSafeJSONResponse({"error": INTERNAL_ERROR}, 500)
