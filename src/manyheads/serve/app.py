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
from manyheads.serve.languages import Detector, Pairs, name_of
from manyheads.serve.limits import Limits
from manyheads.serve.metrics import Metrics
from manyheads.serve.middleware import BUG, ClientLeft, Doors, Guard, Refused, busy
from manyheads.serve.queue import Job, Queue, QueueFull, Work
from manyheads.serve.request_parsing import checked, fields, texts_of
from manyheads.serve.training import Runs
from manyheads.serve.word_alignment import Words
from manyheads.serve.worker import (
    Looking,
    OfSentence,
    Scoring,
    Served,
    TooLong,
    Translating,
    TranslatingPages,
    Viewing,
    Walking,
    without_nan,
)
from manyheads.translator import Translation

LOG = logging.getLogger("manyheads.serve")
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
ABOUT = "LibreTranslate's API, and ours: what the model looks at, and what it thinks of a translation."


class Json(Response):
    """NaN is no number of JSON, so null; text is UTF-8."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        try:
            text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError:
            text = json.dumps(without_nan(content), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


class Server:
    """What the paths share."""

    def __init__(
        self,
        models: Sequence[Served],
        limits: Limits,
        *,
        api_key: str | None = None,
        log_text: bool = False,
        log_requests: bool = True,
        runs: Sequence[Path] = (),
    ) -> None:
        if not models:
            raise ConfigError("a server needs at least one model")
        self.limits, self.api_key, self.log_text, self.log_requests = limits, api_key, log_text, log_requests
        self.pairs, self.metrics, self.runs = Pairs(models), Metrics(), Runs(runs)
        self.detector = Detector(self.pairs.codes)
        self.queue = Queue(limits, self.metrics.batch)
        self.metrics.watch(self.queue)
        self.working: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self, _: FastAPI) -> AsyncIterator[None]:
        self.working = asyncio.create_task(self.queue.run())
        yield
        self.working.cancel()

    def told(self, path: str, status: int, seconds: float) -> None:
        """Of every request: no text, no query string, no address. Refusals of a flood are only counted."""
        self.metrics.answered(path, status, seconds)
        if self.log_requests and status != 503:
            LOG.info("%s %d %.0f ms", path, status, 1000 * seconds)

    # ---- asking and waiting

    async def asked(self, request: Request, kind: type[BaseModel]) -> Any:
        """What a request says, if its key is right."""
        said = await fields(request, self.limits)
        self.check_key(request, said.get("api_key"))
        found = checked(kind, said, self.limits)
        for side in ("source", "target"):
            if hasattr(found, side):
                setattr(found, side, self.pairs.own(getattr(found, side)))
        texts = texts_of(getattr(found, "q", None))
        self.metrics.characters(sum(map(len, texts)))
        return found

    def check_key(self, request: Request, key: Any = None) -> None:
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

    async def done(self, request: Request, wanted: Sequence[tuple[Work, Sequence[Any]]]) -> list[list[Any]]:
        """Results of some work, unless the client leaves, there is no place, or it takes too long."""
        jobs: list[Job] = []
        leaving = asyncio.create_task(departure(request))
        try:
            for work, items in wanted:
                jobs.append(self.queue.submit(work, items))
            answers = [job.answer for job in jobs]
            late = asyncio.get_running_loop().time() + self.limits.deadline
            while not all(answer.done() for answer in answers):
                left = late - asyncio.get_running_loop().time()
                waiting: set[asyncio.Future[Any]] = {leaving, *(one for one in answers if not one.done())}
                await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    raise ClientLeft
                if left <= 0:
                    raise Refused(
                        503,
                        f"not done within {self.limits.deadline:g} seconds",
                        retry_after=str(self.queue.retry_after),
                    )
            return [answer.result() for answer in answers]
        except QueueFull:
            raise busy(self.queue) from None
        except (MemoryError, RuntimeError) as fault:
            if isinstance(fault, RuntimeError) and "memory" not in str(fault):
                raise
            raise Refused(503, "out of memory: send less at once", retry_after="5") from None
        finally:
            leaving.cancel()
            for job in jobs:
                job.answer.cancel()

    # ---- translating

    async def translate(self, request: Request) -> dict[str, Any]:
        asked: api.TranslateRequest = await self.asked(request, api.TranslateRequest)
        if asked.alternatives > self.limits.alternatives:
            raise HTTPException(
                400, f"alternatives is {asked.alternatives}, but at most {self.limits.alternatives} are given"
            )
        texts = texts_of(asked.q)
        detected = self.detected(asked, texts)
        models = [self.model(language, asked) for language, _ in detected]
        found = await self.translations(request, asked, texts, models)
        if self.log_text:
            for text, one in zip(texts, found, strict=True):
                LOG.info("%s -> %s: %r -> %r", asked.source, asked.target, text, one.text)
        answer: dict[str, Any] = {"translatedText": [one.text for one in found]}
        if asked.source == "auto":
            answer["detectedLanguage"] = [
                {"language": language, "confidence": share} for language, share in detected
            ]
        if asked.alternatives:
            answer["alternatives"] = [other_texts(one) for one in found]
        if asked.details and asked.format == "text":
            answer["details"] = [details(one, model) for one, model in zip(found, models, strict=True)]
        return answer if isinstance(asked.q, list) else {key: value[0] for key, value in answer.items()}

    def detected(self, asked: api.TranslateRequest, texts: Sequence[str]) -> list[tuple[str, float]]:
        if asked.source != "auto":
            return [(asked.source, 100.0)] * len(texts)
        sources = self.pairs.sources_of(asked.target)
        # Among equals, as where there are no letters, one that can be translated.
        found = map(self.detector.detect, texts)
        return [max(ranked, key=lambda one: (one[1], one[0] in sources)) for ranked in found]

    def model(self, source: str, asked: api.TranslateRequest) -> Served | None:
        """None where the text is in the target's language already: it stays as it is."""
        self.pairs.check(asked.target)
        return None if source == asked.target else self.pairs.model(source, asked.target, asked.model)

    async def translations(
        self,
        request: Request,
        asked: api.TranslateRequest,
        texts: Sequence[str],
        models: Sequence[Served | None],
    ) -> list[Translation]:
        """In the order of the texts, which may need several models."""
        numbers: dict[Served, list[int]] = {}
        for number, model in enumerate(models):
            if model is not None:
                numbers.setdefault(model, []).append(number)
        wanted = [
            (work_for(model, asked), [texts[number] for number in chosen])
            for model, chosen in numbers.items()
        ]
        found = [Translation(text, text) for text in texts]
        for chosen, answers in zip(numbers.values(), await self.done(request, wanted), strict=True):
            for number, answer in zip(chosen, answers, strict=True):
                found[number] = answer
        return found

    # ---- the other paths

    async def detect(self, request: Request) -> list[dict[str, Any]]:
        asked: api.DetectRequest = await self.asked(request, api.DetectRequest)
        found = self.detector.detect("\n".join(texts_of(asked.q)))
        return [{"language": language, "confidence": share} for language, share in found]

    async def score(self, request: Request) -> dict[str, Any]:
        asked: api.ScoreRequest = await self.asked(request, api.ScoreRequest)
        texts, translations = texts_of(asked.q), texts_of(asked.translation)
        if len(texts) != len(translations):
            raise HTTPException(400, f"q has {len(texts)} texts, but translation has {len(translations)}")
        model = self.pairs.model(asked.source, asked.target, asked.model)
        work, pairs = Scoring(model), list(zip(texts, translations, strict=True))
        work.check(pairs)
        (found,) = await self.done(request, [(work, pairs)])
        return {"scores": [scored(one) for one in found]}

    async def attention(self, request: Request) -> Response:
        asked: api.AttentionRequest = await self.asked(request, api.AttentionRequest)
        return await self.looked(request, asked, Looking(self.seen(asked), asked.layer, self.limits.numbers))

    async def look(self, request: Request) -> Response:
        asked: api.LookRequest = await self.asked(request, api.LookRequest)
        return await self.looked(request, asked, Viewing(self.seen(asked), None, self.limits.numbers))

    async def walk(self, request: Request) -> Response:
        asked: api.WalkRequest = await self.asked(request, api.WalkRequest)
        work = Walking(self.seen(asked), asked.stack, asked.layer, asked.width, self.limits.numbers)
        return await self.looked(request, asked, work)

    def seen(self, asked: api.LookRequest) -> Served:
        """A model that can be looked into."""
        model = self.pairs.model(asked.source, asked.target, asked.model)
        if not model.aligns:
            engine = model.translator.engine.name
            raise HTTPException(400, f"attention maps are the torch engine's; this one is {engine}")
        return model

    async def looked(self, request: Request, asked: api.LookRequest, work: OfSentence) -> Response:
        work.check(asked.q, asked.translation)
        ((found,),) = await self.done(request, [(work, [(asked.q, asked.translation)])])
        return Response(found.encode("utf-8", "replace"), media_type="application/json")

    async def training(self, request: Request) -> list[dict[str, Any]]:
        self.check_key(request)
        return await self.runs.curves()

    async def models(self, request: Request) -> list[dict[str, Any]]:
        self.check_key(request)
        return [
            {
                "name": one.name,
                "source": one.source,
                "target": one.target,
                "engine": one.translator.engine.name,
                "objective": one.translator.engine.objective,
                "longest": one.translator.max_length,
                "alignment": one.aligns,
            }
            for one in self.pairs.models
        ]

    async def languages(self, request: Request) -> list[dict[str, Any]]:
        return [
            {"code": code, "name": name_of(code), "targets": self.pairs.targets_of(code)}
            for code in self.pairs.codes
        ]

    async def health(self, request: Request) -> dict[str, str]:
        if self.working is not None and self.working.done():
            raise Refused(503, "nobody works any more: start the server again", retry_after="60")
        return {"status": "ok"}

    async def settings(self, request: Request) -> dict[str, Any]:
        first = self.pairs.models[0]
        return {
            "apiKeys": self.api_key is not None,
            "charLimit": self.limits.characters,
            "frontendTimeout": 500,
            "keyRequired": self.api_key is not None,
            "language": {
                side: {"code": code, "name": name_of(code)}
                for side, code in (("source", first.source), ("target", first.target))
            },
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "textLimit": self.limits.texts,
            "alternativesLimit": self.limits.alternatives,
        }


async def departure(request: Request) -> None:
    """Ends when the client leaves."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def work_for(model: Served, asked: api.TranslateRequest) -> Work:
    if asked.format == "html":
        return TranslatingPages(model, asked.alternatives + 1)
    return Translating(model, asked.alternatives + 1, asked.details)


def other_texts(found: Translation) -> list[str]:
    """Each once: beams differ in ways that do not show."""
    return list(dict.fromkeys(one.text for one in found.alternatives if one.text != found.text))


def details(found: Translation, model: Served | None) -> dict[str, Any]:
    return {
        "score": found.score,
        "sourceTokens": found.source_tokens,
        "tokens": found.tokens,
        "tokenScores": found.token_scores,
        "alignment": found.alignment,
        "sentences": model.sentences(found.source) if model else [],
        **Words.of(found).told(),
    }


def scored(found: Translation) -> dict[str, Any]:
    return {
        "score": found.score,
        "logProbability": found.log_probability,
        "sourceTokens": found.source_tokens,
        "tokens": found.tokens,
        "tokenScores": found.token_scores,
    }


# ---- putting it together


def application(
    models: Sequence[Served],
    limits: Limits | None = None,
    doors: Doors | None = None,
    **how: Any,
) -> Guard:
    """The whole server as an ASGI application. `how` is Server's."""
    server = Server(models, limits or Limits(), **how)
    app = FastAPI(
        title="Manyheads", description=ABOUT, version="1", docs_url=None, redoc_url=None,
        lifespan=server.running, responses=api.FAULTS, redirect_slashes=False,
    )  # fmt: skip
    add_paths(app, server)
    add_page(app)
    app.add_exception_handler(HTTPException, refusal)
    app.add_exception_handler(ManyheadsError, refusal)
    app.add_exception_handler(Refused, refusal)
    app.add_exception_handler(ClientLeft, refusal)
    app.add_exception_handler(Exception, bug)
    paths = [getattr(route, "path", "") for route in app.routes]
    return Guard(app, server.limits, doors or Doors.of("127.0.0.1"), server.queue, paths, server.told)


def add_paths(app: FastAPI, server: Server) -> None:
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
            return found if isinstance(found, Response) else Json(found)

        app.add_api_route(
            path,
            endpoint,
            methods=["POST" if asked else "GET"],
            name=path.strip("/"),
            response_model=None,
            responses={200: {"model": model, "description": "Done."}},
            openapi_extra=api.body_of(asked, limits, pairs) if asked else None,
        )

    add("/translate", server.translate, api.TranslateAnswer, api.TranslateRequest)
    add("/detect", server.detect, list[api.Detection], api.DetectRequest)
    add("/score", server.score, api.ScoreAnswer, api.ScoreRequest)
    add("/attention", server.attention, api.AttentionAnswer, api.AttentionRequest)
    add("/look", server.look, api.LookAnswer, api.LookRequest)
    add("/walk", server.walk, api.WalkAnswer, api.WalkRequest)
    add("/training", server.training, list[api.RunAnswer])
    add("/languages", server.languages, list[api.Language])
    add("/models", server.models, list[api.ModelAnswer])
    add("/health", server.health, api.Health)
    add("/frontend/settings", server.settings, api.FrontendSettings)

    async def alive(request: Request) -> Response:
        return Json(await server.health(request))

    app.add_route("/health", alive, ["HEAD"], include_in_schema=False)  # as watchers of servers ask

    async def metrics(request: Request) -> Response:
        server.check_key(request)
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4")

    told = {
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "For Prometheus."}
    }
    app.add_api_route("/metrics", metrics, name="metrics", response_class=Response, responses=told)  # type: ignore[arg-type]


def add_page(app: FastAPI) -> None:
    """Every file of page/ under its own name, index.html as /; the attention view's under /look/."""
    for room, before in (("manyheads.serve", "/"), ("manyheads.look", "/look/")):
        for file in files(room).joinpath("assets").iterdir():
            suffix = "." + file.name.rpartition(".")[2]
            if suffix in TYPES and not (suffix == ".html" and before != "/"):
                path = "/" if file.name == "index.html" else before + file.name
                app.add_route(path, shown(file.read_bytes(), TYPES[suffix]), ["GET"], include_in_schema=False)


def shown(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})

    return show


async def refusal(request: Request, fault: Exception) -> Response:
    """In the form of LibreTranslate's."""
    if isinstance(fault, HTTPException):
        return Json({"error": str(fault.detail)}, fault.status_code, headers=dict(fault.headers or {}))
    if isinstance(fault, Refused):
        return Json({"error": fault.error}, fault.status, headers=fault.sent_headers)
    if isinstance(fault, ClientLeft):
        return Response(status_code=499)  # which nobody reads
    if isinstance(fault, TooLong):
        return Json({"error": str(fault), "kind": "too_long"}, 400)
    if isinstance(fault, RequestError | ConfigError):
        return Json({"error": str(fault)}, 400)
    raise fault


async def bug(request: Request, fault: Exception) -> Response:
    """The guard hears of it too, and writes where it was into the log."""
    return Json({"error": BUG}, 500)
