"""The application: every path, what it takes and what it answers."""

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from manyheads.errors import ConfigError, ManyheadsError, RequestError
from manyheads.serve import schemas as api
from manyheads.serve.languages import LanguageDetector, ModelRegistry, language_name
from manyheads.serve.limits import ServerLimits
from manyheads.serve.metrics import ServerMetrics
from manyheads.serve.middleware import (
    INTERNAL_ERROR,
    AllowedHosts,
    ClientDisconnected,
    RequestMiddleware,
    RequestRejected,
    queue_full_error,
)
from manyheads.serve.queue import BatchTask, Job, JobQueue, QueueFull
from manyheads.serve.request_parsing import read_fields, to_list, validate_request
from manyheads.serve.training import TrainingRuns
from manyheads.serve.word_alignment import WordAlignment
from manyheads.serve.worker import (
    AttentionPageTask,
    AttentionTask,
    ScoreTask,
    SentenceTask,
    ServedModel,
    TooManyNumbersError,
    TranslateHtmlTask,
    TranslateTask,
    WalkTask,
    replace_nan,
)
from manyheads.translator import Translation

LOG = logging.getLogger("manyheads.serve")
MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
DESCRIPTION = "LibreTranslate's API, and ours: what the model looks at, and what it thinks of a translation."


class NanSafeJSONResponse(Response):
    """NaN is no number of JSON, so null; text is UTF-8."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        try:
            text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError:
            text = json.dumps(replace_nan(content), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


class Endpoints:
    """What the paths share."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        limits: ServerLimits,
        *,
        api_key: str | None = None,
        log_text: bool = False,
        log_requests: bool = True,
        runs: Sequence[Path] = (),
    ) -> None:
        if not models:
            raise ConfigError("a server needs at least one model")
        self.limits, self.api_key, self.log_text, self.log_requests = limits, api_key, log_text, log_requests
        self.pairs, self.metrics, self.runs = ModelRegistry(models), ServerMetrics(), TrainingRuns(runs)
        self.detector = LanguageDetector(self.pairs.codes)
        self.queue = JobQueue(limits, self.metrics.record_batch)
        self.metrics.track_queue(self.queue)
        self.worker_task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        self.worker_task = asyncio.create_task(self.queue.run())
        yield
        self.worker_task.cancel()

    def record_request(self, path: str, status: int, seconds: float) -> None:
        """Of every request: no text, no query string, no address. Refusals of a flood are only counted."""
        self.metrics.record_request(path, status, seconds)
        if self.log_requests and status != 503:
            LOG.info("%s %d %.0f ms", path, status, 1000 * seconds)

    # ---- asking and waiting

    async def parse_request(self, request: Request, kind: type[BaseModel]) -> Any:
        """What a request says, if its key is right."""
        said = await read_fields(request, self.limits)
        self.check_api_key(request, said.get("api_key"))
        found = validate_request(kind, said, self.limits)
        for side in ("source", "target"):
            if hasattr(found, side):
                setattr(found, side, self.pairs.normalize_code(getattr(found, side)))
        texts = to_list(getattr(found, "q", None))
        self.metrics.record_characters(sum(map(len, texts)))
        return found

    def check_api_key(self, request: Request, key: Any = None) -> None:
        if self.api_key is None:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = str(key or request.query_params.get("api_key", "")).encode("utf-8", "replace")
        if scheme.lower() == "bearer":
            given = token.encode("latin-1")  # as headers are read
        if not hmac.compare_digest(given, self.api_key.encode()):
            raise HTTPException(
                403, "this server needs an API key, and this is not it: api_key, or Authorization"
            )

    async def run_tasks(
        self, request: Request, wanted: Sequence[tuple[BatchTask, Sequence[Any]]]
    ) -> list[list[Any]]:
        """Results of some work, unless the client leaves, there is no place, or it takes too long."""
        jobs: list[Job] = []
        leaving = asyncio.create_task(wait_for_disconnect(request))
        try:
            for work, items in wanted:
                jobs.append(self.queue.submit(work, items))
            answers = [job.future for job in jobs]
            late = asyncio.get_running_loop().time() + self.limits.request_timeout
            while not all(answer.done() for answer in answers):
                left = late - asyncio.get_running_loop().time()
                waiting: set[asyncio.Future[Any]] = {leaving, *(one for one in answers if not one.done())}
                await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    raise ClientDisconnected
                if left <= 0:
                    raise RequestRejected(
                        503,
                        f"not done within {self.limits.request_timeout:g} seconds",
                        retry_after=str(self.queue.retry_after),
                    )
            return [answer.result() for answer in answers]
        except QueueFull:
            raise queue_full_error(self.queue) from None
        except (MemoryError, RuntimeError) as fault:
            if isinstance(fault, RuntimeError) and "memory" not in str(fault):
                raise
            raise RequestRejected(503, "out of memory: send less at once", retry_after="5") from None
        finally:
            leaving.cancel()
            for job in jobs:
                job.future.cancel()

    # ---- translating

    async def translate(self, request: Request) -> dict[str, Any]:
        asked: api.TranslateRequest = await self.parse_request(request, api.TranslateRequest)
        if asked.alternatives > self.limits.max_alternatives:
            raise HTTPException(
                400,
                f"alternatives is {asked.alternatives}, but at most {self.limits.max_alternatives} are given",
            )
        texts = to_list(asked.q)
        detected = self.detect_languages(asked, texts)
        models = [self.select_model(language, asked) for language, _ in detected]
        found = await self.translate_texts(request, asked, texts, models)
        if self.log_text:
            for text, one in zip(texts, found, strict=True):
                LOG.info("%s -> %s: %r -> %r", asked.source, asked.target, text, one.text)
        answer: dict[str, Any] = {"translatedText": [one.text for one in found]}
        if asked.source == "auto":
            answer["detectedLanguage"] = [
                {"language": language, "confidence": share} for language, share in detected
            ]
        if asked.alternatives:
            answer["alternatives"] = [distinct_alternatives(one) for one in found]
        if asked.details and asked.format == "text":
            answer["details"] = [format_details(one, model) for one, model in zip(found, models, strict=True)]
        return answer if isinstance(asked.q, list) else {key: value[0] for key, value in answer.items()}

    def detect_languages(self, asked: api.TranslateRequest, texts: Sequence[str]) -> list[tuple[str, float]]:
        if asked.source != "auto":
            return [(asked.source, 100.0)] * len(texts)
        sources = self.pairs.find_sources(asked.target)
        # Among equals, as where there are no letters, one that can be translated.
        found = map(self.detector.detect, texts)
        return [max(ranked, key=lambda one: (one[1], one[0] in sources)) for ranked in found]

    def select_model(self, source: str, asked: api.TranslateRequest) -> ServedModel | None:
        """None where the text is in the target's language already: it stays as it is."""
        self.pairs.check_language(asked.target)
        return None if source == asked.target else self.pairs.find_model(source, asked.target, asked.model)

    async def translate_texts(
        self,
        request: Request,
        asked: api.TranslateRequest,
        texts: Sequence[str],
        models: Sequence[ServedModel | None],
    ) -> list[Translation]:
        """In the order of the texts, which may need several models."""
        numbers: dict[ServedModel, list[int]] = {}
        for number, model in enumerate(models):
            if model is not None:
                numbers.setdefault(model, []).append(number)
        wanted = [
            (create_translate_task(model, asked), [texts[number] for number in chosen])
            for model, chosen in numbers.items()
        ]
        found = [Translation(text, text) for text in texts]
        for chosen, answers in zip(numbers.values(), await self.run_tasks(request, wanted), strict=True):
            for number, answer in zip(chosen, answers, strict=True):
                found[number] = answer
        return found

    # ---- the other paths

    async def detect(self, request: Request) -> list[dict[str, Any]]:
        asked: api.DetectRequest = await self.parse_request(request, api.DetectRequest)
        found = self.detector.detect("\n".join(to_list(asked.q)))
        return [{"language": language, "confidence": share} for language, share in found]

    async def score(self, request: Request) -> dict[str, Any]:
        asked: api.ScoreRequest = await self.parse_request(request, api.ScoreRequest)
        texts, translations = to_list(asked.q), to_list(asked.translation)
        if len(texts) != len(translations):
            raise HTTPException(400, f"q has {len(texts)} texts, but translation has {len(translations)}")
        model = self.pairs.find_model(asked.source, asked.target, asked.model)
        work, pairs = ScoreTask(model), list(zip(texts, translations, strict=True))
        work.check(pairs)
        (found,) = await self.run_tasks(request, [(work, pairs)])
        return {"scores": [format_score(one) for one in found]}

    async def attention(self, request: Request) -> Response:
        asked: api.AttentionRequest = await self.parse_request(request, api.AttentionRequest)
        return await self.run_sentence_task(
            request,
            asked,
            AttentionTask(self.select_attention_model(asked), asked.layer, self.limits.max_numbers),
        )

    async def look(self, request: Request) -> Response:
        asked: api.LookRequest = await self.parse_request(request, api.LookRequest)
        return await self.run_sentence_task(
            request,
            asked,
            AttentionPageTask(self.select_attention_model(asked), None, self.limits.max_numbers),
        )

    async def walk(self, request: Request) -> Response:
        asked: api.WalkRequest = await self.parse_request(request, api.WalkRequest)
        work = WalkTask(
            self.select_attention_model(asked), asked.stack, asked.layer, asked.width, self.limits.max_numbers
        )
        return await self.run_sentence_task(request, asked, work)

    def select_attention_model(self, asked: api.LookRequest) -> ServedModel:
        """A model that can be looked into."""
        model = self.pairs.find_model(asked.source, asked.target, asked.model)
        if not model.can_align:
            engine = model.translator.engine.name
            raise HTTPException(400, f"attention maps are the torch engine's; this one is {engine}")
        return model

    async def run_sentence_task(
        self, request: Request, asked: api.LookRequest, work: SentenceTask
    ) -> Response:
        work.check(asked.q, asked.translation)
        ((found,),) = await self.run_tasks(request, [(work, [(asked.q, asked.translation)])])
        return Response(found.encode("utf-8", "replace"), media_type="application/json")

    async def training(self, request: Request) -> list[dict[str, Any]]:
        self.check_api_key(request)
        return await self.runs.read_curves()

    async def models(self, request: Request) -> list[dict[str, Any]]:
        self.check_api_key(request)
        return [
            {
                "name": one.name,
                "source": one.source,
                "target": one.target,
                "engine": one.translator.engine.name,
                "objective": one.translator.engine.objective,
                "longest": one.translator.max_length,
                "alignment": one.can_align,
            }
            for one in self.pairs.models
        ]

    async def languages(self, request: Request) -> list[dict[str, Any]]:
        return [
            {"code": code, "name": language_name(code), "targets": self.pairs.find_targets(code)}
            for code in self.pairs.codes
        ]

    async def health(self, request: Request) -> dict[str, str]:
        if self.worker_task is not None and self.worker_task.done():
            raise RequestRejected(503, "nobody works any more: start the server again", retry_after="60")
        return {"status": "ok"}

    async def settings(self, request: Request) -> dict[str, Any]:
        first = self.pairs.models[0]
        return {
            "apiKeys": self.api_key is not None,
            "charLimit": self.limits.max_characters,
            "frontendTimeout": 500,
            "keyRequired": self.api_key is not None,
            "language": {
                side: {"code": code, "name": language_name(code)}
                for side, code in (("source", first.source), ("target", first.target))
            },
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "textLimit": self.limits.max_texts,
            "alternativesLimit": self.limits.max_alternatives,
        }


async def wait_for_disconnect(request: Request) -> None:
    """Ends when the client leaves."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def create_translate_task(model: ServedModel, asked: api.TranslateRequest) -> BatchTask:
    if asked.format == "html":
        return TranslateHtmlTask(model, asked.alternatives + 1)
    return TranslateTask(model, asked.alternatives + 1, asked.details)


def distinct_alternatives(found: Translation) -> list[str]:
    """Each once: beams differ in ways that do not show."""
    return list(dict.fromkeys(one.text for one in found.alternatives if one.text != found.text))


def format_details(found: Translation, model: ServedModel | None) -> dict[str, Any]:
    return {
        "score": found.score,
        "sourceTokens": found.source_tokens,
        "tokens": found.tokens,
        "tokenScores": found.token_scores,
        "alignment": found.alignment,
        "sentences": model.split_sentences(found.source) if model else [],
        **WordAlignment.from_translation(found).to_json(),
    }


def format_score(found: Translation) -> dict[str, Any]:
    return {
        "score": found.score,
        "logProbability": found.log_probability,
        "sourceTokens": found.source_tokens,
        "tokens": found.tokens,
        "tokenScores": found.token_scores,
    }


# ---- putting it together


def create_app(
    models: Sequence[ServedModel],
    limits: ServerLimits | None = None,
    allowed_hosts: AllowedHosts | None = None,
    **how: Any,
) -> RequestMiddleware:
    """The whole server as an ASGI application. `how` is Server's."""
    server = Endpoints(models, limits or ServerLimits(), **how)
    app = FastAPI(
        title="Manyheads", description=DESCRIPTION, version="1", docs_url=None, redoc_url=None,
        lifespan=server.lifespan, responses=api.ERROR_RESPONSES, redirect_slashes=False,
    )  # fmt: skip
    add_routes(app, server)
    add_assets(app)
    app.add_exception_handler(HTTPException, handle_error)
    app.add_exception_handler(ManyheadsError, handle_error)
    app.add_exception_handler(RequestRejected, handle_error)
    app.add_exception_handler(ClientDisconnected, handle_error)
    app.add_exception_handler(Exception, handle_internal_error)
    paths = [getattr(route, "path", "") for route in app.routes]
    return RequestMiddleware(
        app,
        server.limits,
        allowed_hosts or AllowedHosts.for_host("127.0.0.1"),
        server.queue,
        paths,
        server.record_request,
    )


def add_routes(app: FastAPI, server: Endpoints) -> None:
    limits, pairs = server.limits, server.pairs

    def add(
        path: str,
        answer: Callable[[Request], Awaitable[Any]],
        model: Any,
        asked: type[BaseModel] | None = None,
    ) -> None:
        """The answers are what they are described as: this is tested, and not checked again for each."""

        async def endpoint(request: Request) -> Response:
            found = await answer(request)
            return found if isinstance(found, Response) else NanSafeJSONResponse(found)

        app.add_api_route(
            path,
            endpoint,
            methods=["POST" if asked else "GET"],
            name=path.strip("/"),
            response_model=None,
            responses={200: {"model": model, "description": "Done."}},
            openapi_extra=api.describe_request_body(asked, limits, pairs) if asked else None,
        )

    add("/translate", server.translate, api.TranslateResponse, api.TranslateRequest)
    add("/detect", server.detect, list[api.Detection], api.DetectRequest)
    add("/score", server.score, api.ScoreResponse, api.ScoreRequest)
    add("/attention", server.attention, api.AttentionResponse, api.AttentionRequest)
    add("/look", server.look, api.LookResponse, api.LookRequest)
    add("/walk", server.walk, api.WalkResponse, api.WalkRequest)
    add("/training", server.training, list[api.TrainingRunInfo])
    add("/languages", server.languages, list[api.LanguageInfo])
    add("/models", server.models, list[api.ModelInfo])
    add("/health", server.health, api.HealthResponse)
    add("/frontend/settings", server.settings, api.FrontendSettings)

    async def alive(request: Request) -> Response:
        return NanSafeJSONResponse(await server.health(request))

    app.add_route("/health", alive, ["HEAD"], include_in_schema=False)  # as watchers of servers ask

    async def metrics(request: Request) -> Response:
        server.check_api_key(request)
        return Response(server.metrics.render(), media_type="text/plain; version=0.0.4")

    told = {
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "For Prometheus."}
    }
    app.add_api_route("/metrics", metrics, name="metrics", response_class=Response, responses=told)  # type: ignore[arg-type]


def add_assets(app: FastAPI) -> None:
    """Every file of page/ under its own name, index.html as /; the attention view's under /look/."""
    for room, before in (("manyheads.serve", "/"), ("manyheads.look", "/look/")):
        for file in files(room).joinpath("assets").iterdir():
            suffix = "." + file.name.rpartition(".")[2]
            if suffix in MEDIA_TYPES and not (suffix == ".html" and before != "/"):
                path = "/" if file.name == "index.html" else before + file.name
                app.add_route(
                    path,
                    make_asset_endpoint(file.read_bytes(), MEDIA_TYPES[suffix]),
                    ["GET"],
                    include_in_schema=False,
                )


def make_asset_endpoint(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})

    return show


async def handle_error(request: Request, fault: Exception) -> Response:
    """In the form of LibreTranslate's."""
    if isinstance(fault, HTTPException):
        return NanSafeJSONResponse(
            {"error": str(fault.detail)}, fault.status_code, headers=dict(fault.headers or {})
        )
    if isinstance(fault, RequestRejected):
        return NanSafeJSONResponse({"error": fault.error}, fault.status, headers=fault.headers)
    if isinstance(fault, ClientDisconnected):
        return Response(status_code=499)  # which nobody reads
    if isinstance(fault, TooManyNumbersError):
        return NanSafeJSONResponse({"error": str(fault), "kind": "too_long"}, 400)
    if isinstance(fault, RequestError | ConfigError):
        return NanSafeJSONResponse({"error": str(fault)}, 400)
    raise fault


async def handle_internal_error(request: Request, fault: Exception) -> Response:
    """The guard hears of it too, and writes where it was into the log."""
    return NanSafeJSONResponse({"error": INTERNAL_ERROR}, 500)
