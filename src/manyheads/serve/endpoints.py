"""The endpoints of the HTTP API: what each reads from a request and what it answers."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from manyheads.confidence_policy import ConfidencePolicy
from manyheads.documents.suffixes import DOCUMENT_SUFFIXES
from manyheads.errors import ConfigError
from manyheads.memory.database import DEFAULT_SPACE
from manyheads.serve import schemas
from manyheads.serve.adapted_models import AdaptedModels
from manyheads.serve.api_keys import MISSING_KEY, ApiKeys
from manyheads.serve.clients import ClientLimiter, identify_client
from manyheads.serve.corrections import ServedCorrections
from manyheads.serve.engine_messages import Message
from manyheads.serve.glossaries import GlossaryStore
from manyheads.serve.jobs import BatchTask, Job
from manyheads.serve.languages import LanguageDetector
from manyheads.serve.limits import ServerLimits
from manyheads.serve.metrics import ServerMetrics
from manyheads.serve.middleware import queue_full_error, share_exceeded_error
from manyheads.serve.model_registry import ModelRegistry
from manyheads.serve.queue import JobQueue, QueueFull, ShareExceeded
from manyheads.serve.remote_engine import EngineConnection, EngineLost, RemoteScheduler
from manyheads.serve.request_parsing import RequestT, read_fields, to_list, validate_request
from manyheads.serve.request_policy import check_calibration, choose_text, create_policy
from manyheads.serve.response_parts import (
    distinct_alternatives,
    format_confidences,
    format_corrections,
    format_details,
    format_detection,
    format_language,
    format_model,
    format_notes,
    format_score,
)
from manyheads.serve.responses import ClientDisconnected, RequestRejected
from manyheads.serve.sentence_tasks import CheckedTask, create_sentence_task
from manyheads.serve.served_model import ServedModel
from manyheads.serve.source_language import SourceLanguage, check_source, detect_source
from manyheads.serve.training import TrainingRuns
from manyheads.serve.translation_tasks import ScoreTask, create_translate_task
from manyheads.text.term_matching import Glossary
from manyheads.translation import Translation

RATE_SECONDS = 60.0
LOG = logging.getLogger("manyheads.serve")
MARKUP = re.compile(r"<[^<>]*>")  # of HTML, which is in no language


class Endpoints:
    """The state that all endpoints share, and one method per endpoint."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        limits: ServerLimits,
        *,
        api_key: str | None = None,
        user_keys: Mapping[str, str] | None = None,
        corrections: bool = False,
        log_text: bool = False,
        log_requests: bool = True,
        runs: Sequence[Path] = (),
        glossaries: str | None = None,
        connection: EngineConnection | None = None,
    ) -> None:
        """With a connection this is one of several front-ends of an engine process."""
        if not models:
            raise ConfigError("a server needs at least one model")
        self.limits, self.log_text, self.log_requests = limits, log_text, log_requests
        self.api_keys = ApiKeys(api_key, user_keys or {})
        if corrections and not self.api_keys.are_required:
            raise ConfigError(MISSING_KEY)
        self.corrections = ServedCorrections(limits, corrections)
        self.registry, self.metrics, self.runs = ModelRegistry(models), ServerMetrics(), TrainingRuns(runs)
        self.adapted = AdaptedModels()
        self.glossaries = GlossaryStore(None if glossaries is None else Path(glossaries), limits)
        self.detector = LanguageDetector(self.registry.codes)
        num_workers = max(model.num_workers for model in models)
        self.connection = connection
        create_scheduler = partial(RemoteScheduler, connection) if connection else None
        self.queue = JobQueue(limits, self.metrics.record_batch, num_workers, create_scheduler)
        self.wrong_keys = ClientLimiter("wrong API keys", limits.max_wrong_keys, RATE_SECONDS)
        self.requests = ClientLimiter("requests", limits.max_requests_per_minute, RATE_SECONDS)
        self.metrics.track_queue(self.queue)
        self.metrics.track_models(models)
        self.worker_task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        self.worker_task = asyncio.create_task(self.queue.run())
        if self.connection is not None:
            self.connection.handlers |= {"wrong_key": self._record_wrong_key, "collect": self._send_metrics}
            self.connection.start()
        yield
        self.worker_task.cancel()
        if self.connection is not None:
            self.connection.close()

    def record_request(self, path: str, status: int, seconds: float) -> None:
        """Count and log a request, without text, query string or address. 503s are only counted."""
        self.metrics.record_request(path, status, seconds)
        if self.log_requests and status != 503:
            LOG.info("%s %d %.0f ms", path, status, 1000 * seconds)

    # ---- requests

    async def parse_request(self, request: Request, schema: type[RequestT]) -> RequestT:
        """Return the validated fields of a request, after checking its API key.

        The name of its user is then in `request.state.user`.
        """
        fields = await read_fields(request, self.limits)
        self.admit(request, fields.get("api_key") or fields.get("apiKey"))
        query = validate_request(schema, fields, self.limits)
        self.normalize_languages(query)
        self.metrics.record_characters(sum(map(len, to_list(getattr(query, "q", None)))))
        return query

    def normalize_languages(self, query: BaseModel) -> None:
        """Replace the languages of a request by the served ones that they mean."""
        for side in ("source", "target"):
            if hasattr(query, side):
                setattr(query, side, self.registry.normalize_code(getattr(query, side)))

    def admit(self, request: Request, key: Any = None) -> None:
        """Check the API key, and whether the client has sent too many requests. Note whose key it is."""
        request.state.user = self.check_api_key(request, key)
        if self.limits.max_requests_per_minute:
            client = identify_client(request)
            self.requests.check(client)
            self.requests.record(client)

    def check_api_key(self, request: Request, key: Any = None) -> str:
        """Return whose API key it is. A client that guesses is refused, whatever its key is."""
        if not self.api_keys.are_required:
            return DEFAULT_SPACE
        client = identify_client(request)
        self.wrong_keys.check(client)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        received = str(key or request.query_params.get("api_key", "")).encode("utf-8", "replace")
        if scheme.lower() in ("bearer", "deepl-auth-key"):
            received = token.encode("latin-1")  # the encoding in which headers are read
        user = self.api_keys.find_user(received)
        if user is None:
            if received:
                self.wrong_keys.record(client)
                if self.connection is not None:  # all front-ends count it
                    self.connection.notify({"wrong_key": client})
            raise HTTPException(
                403, "missing or wrong API key: send it as api_key or in the Authorization header"
            )
        return user

    async def run_tasks(
        self, request: Request, tasks: Sequence[tuple[BatchTask, Sequence[Any]]]
    ) -> list[list[Any]]:
        """Run tasks in the queue. Stops when the client disconnects or the time is over."""
        jobs: list[Job] = []
        disconnect = asyncio.create_task(wait_for_disconnect(request))
        try:
            for task, items in tasks:
                jobs.append(self.queue.submit(task, items, identify_client(request)))
            await self._wait_for_jobs(jobs, disconnect)
            return [job.future.result() for job in jobs]
        except ShareExceeded:
            raise share_exceeded_error(self.queue) from None
        except QueueFull:
            raise queue_full_error(self.queue) from None
        except EngineLost:
            raise RequestRejected(503, "the engine has stopped: retry later", retry_after="5") from None
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            raise RequestRejected(503, "out of memory: send less text at once", retry_after="5") from None
        finally:
            disconnect.cancel()
            for job in jobs:
                job.future.cancel()

    async def _wait_for_jobs(self, jobs: Sequence[Job], disconnect: "asyncio.Task[None]") -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.request_timeout
        while pending := [job.future for job in jobs if not job.future.done()]:
            remaining = deadline - loop.time()
            waiting: set[asyncio.Future[Any]] = {disconnect, *pending}
            await asyncio.wait(waiting, timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
            if disconnect.done():
                raise ClientDisconnected
            if remaining <= 0:
                raise RequestRejected(
                    503,
                    f"not completed within {self.limits.request_timeout:g} seconds",
                    retry_after=str(self.queue.retry_after),
                )

    # ---- translation

    async def translate(self, request: Request) -> dict[str, Any]:
        return await self.translate_query(
            request, await self.parse_request(request, schemas.TranslateRequest)
        )

    async def translate_query(self, request: Request, query: schemas.TranslateRequest) -> dict[str, Any]:
        max_alternatives = self.limits.max_alternatives
        if query.alternatives > max_alternatives:
            raise HTTPException(
                400, f"alternatives is {query.alternatives}, but the maximum is {max_alternatives}"
            )
        texts, policy = to_list(query.q), create_policy(query)
        languages = self.find_source_languages(query, texts)
        models = [self.select_model(language.code, query) for language in languages]
        user = request.state.user
        adapted = {
            model: model and await self.apply_adapter(model, query.adapter, user) for model in {*models}
        }
        models = [adapted[model] for model in models]
        if policy is not None:
            check_calibration(models)
        translations = await self.translate_texts(request, query, texts, models, policy)
        self.record_confidences(models, translations)
        if self.log_text:
            for text, translation in zip(texts, translations, strict=True):
                LOG.info("%s -> %s: %r -> %r", query.source, query.target, text, translation.text)
        response: dict[str, Any] = {
            "translatedText": [choose_text(translation, query, policy) for translation in translations],
            **format_confidences(translations),
            **format_notes(translations, languages),
            **format_corrections(translations),
        }
        if query.source == "auto":
            response["detectedLanguage"] = [
                format_detection(language.detected, language.confidence) for language in languages
            ]
        if query.alternatives:
            response["alternatives"] = list(map(distinct_alternatives, translations))
        if query.details and query.format == "text":
            response["details"] = list(map(format_details, translations, models))
        return response if isinstance(query.q, list) else {key: value[0] for key, value in response.items()}

    def find_source_languages(
        self, query: schemas.TranslateRequest, texts: Sequence[str]
    ) -> list[SourceLanguage]:
        """Return the source language of each text, which is detected or checked."""
        if query.format == "html":
            texts = [MARKUP.sub(" ", text) for text in texts]
        if query.source == "auto":
            languages = [detect_source(text, query.target, self.detector, self.registry) for text in texts]
        elif query.source == query.target:
            return [SourceLanguage(query.source, query.source, 100.0)] * len(texts)
        else:
            languages = [check_source(text, query.source, self.detector) for text in texts]
        for language in languages:
            if language.note:
                self.metrics.record_foreign_text()
        return languages

    def record_confidences(
        self, models: Sequence[ServedModel | None], translations: Sequence[Translation]
    ) -> None:
        for model, translation in zip(models, translations, strict=True):
            if model is not None and translation.confidence is not None:
                self.metrics.record_confidence(model.name, translation.confidence)

    def select_model(
        self, source: str, query: schemas.TranslateRequest | schemas.FileRequest
    ) -> ServedModel | None:
        """Return the model for a text; None where it is in the target language already."""
        self.registry.check_language(query.target)
        return None if source == query.target else self.registry.find_model(source, query.target, query.model)

    async def apply_adapter(self, model: ServedModel, adapter: str | None, user: str) -> ServedModel:
        """Return the model with the adapter that a request names, if it does. Merging is left to a thread."""
        if adapter is None:
            return model
        return await asyncio.to_thread(self.adapted.get, model, adapter, user)

    async def translate_texts(
        self,
        request: Request,
        query: schemas.TranslateRequest,
        texts: Sequence[str],
        models: Sequence[ServedModel | None],
        policy: ConfidencePolicy | None,
    ) -> list[Translation]:
        """Translate each text with its model; without one it stays as it is."""
        indices: dict[ServedModel, list[int]] = {}
        for index, model in enumerate(models):
            if model is not None:
                indices.setdefault(model, []).append(index)
        space = request.state.user if self.corrections.is_enabled else None
        tasks = [
            (
                create_translate_task(model, query, policy, await self.get_glossary(model, query), space),
                [texts[index] for index in own],
            )
            for model, own in indices.items()
        ]
        translations = [Translation(text, text) for text in texts]
        for own, results in zip(indices.values(), await self.run_tasks(request, tasks), strict=True):
            for index, result in zip(own, results, strict=True):
                translations[index] = result
        return translations

    async def get_glossary(self, model: ServedModel, query: schemas.TranslateRequest) -> Glossary | None:
        """Return the glossary of a request, if it has one. Reading a file is left to a thread."""
        if not query.glossary:
            return None
        return await asyncio.to_thread(self.glossaries.get, query.glossary, model.source, model.target)

    async def detect(self, request: Request) -> list[dict[str, Any]]:
        query = await self.parse_request(request, schemas.DetectRequest)
        detections = self.detector.detect("\n".join(to_list(query.q)))
        return [format_detection(*detection) for detection in detections]

    async def score(self, request: Request) -> dict[str, Any]:
        query = await self.parse_request(request, schemas.ScoreRequest)
        texts, translations = to_list(query.q), to_list(query.translation)
        if len(texts) != len(translations):
            raise HTTPException(400, f"q has {len(texts)} texts, but translation has {len(translations)}")
        model = self.registry.find_model(query.source, query.target, query.model)
        task = ScoreTask(await self.apply_adapter(model, query.adapter, request.state.user))
        pairs = list(zip(texts, translations, strict=True))
        task.check(pairs)
        (results,) = await self.run_tasks(request, [(task, pairs)])
        return {"scores": list(map(format_score, results))}

    # ---- attention

    async def attention(self, request: Request) -> Response:
        query = await self.parse_request(request, schemas.AttentionRequest)
        parameters = query.layer, self.limits.max_numbers
        task = create_sentence_task(
            "attention", await self.select_attention_model(request, query), parameters
        )
        return await self.run_sentence_task(request, query, task)

    async def look(self, request: Request) -> Response:
        query = await self.parse_request(request, schemas.LookRequest)
        parameters = None, self.limits.max_numbers
        task = create_sentence_task("look", await self.select_attention_model(request, query), parameters)
        return await self.run_sentence_task(request, query, task)

    async def walk(self, request: Request) -> Response:
        query = await self.parse_request(request, schemas.WalkRequest)
        parameters = query.stack, query.layer, query.width, self.limits.max_numbers, query.parameters
        task = create_sentence_task("walk", await self.select_attention_model(request, query), parameters)
        return await self.run_sentence_task(request, query, task)

    async def select_attention_model(self, request: Request, query: schemas.LookRequest) -> ServedModel:
        model = self.registry.find_model(query.source, query.target, query.model)
        model.translator.engine.require("attention")
        return await self.apply_adapter(model, query.adapter, request.state.user)

    async def run_sentence_task(
        self, request: Request, query: schemas.LookRequest, task: CheckedTask
    ) -> Response:
        task.check(query.q, query.translation)
        ((result,),) = await self.run_tasks(request, [(task, [(query.q, query.translation)])])
        return Response(result.encode("utf-8", "replace"), media_type="application/json")

    # ---- the server itself

    async def training(self, request: Request) -> list[dict[str, Any]]:
        self.check_api_key(request)
        return await self.runs.read_curves()

    async def models(self, request: Request) -> list[dict[str, Any]]:
        user = self.check_api_key(request)
        return [format_model(model, user) for model in self.registry.models]

    async def list_glossaries(self, request: Request) -> list[dict[str, Any]]:
        self.check_api_key(request)
        return [{"name": name} for name in self.glossaries.list_names()]

    async def languages(self, request: Request) -> list[dict[str, Any]]:
        return [
            {**format_language(code), "targets": self.registry.find_targets(code)}
            for code in self.registry.codes
        ]

    async def health(self, request: Request) -> dict[str, str]:
        if self.connection is not None and self.connection.is_lost:
            raise RequestRejected(503, "the engine has stopped: restart the server", retry_after="60")
        if self.worker_task is not None and self.worker_task.done():
            raise RequestRejected(503, "the worker has stopped: restart the server", retry_after="60")
        return {"status": "ok"}

    async def render_metrics(self) -> str:
        """Return the metrics of the server: those of all its processes."""
        if self.connection is None:
            return self.metrics.render()
        try:
            merged: str = await asyncio.wrap_future(self.connection.start_call("metrics"))
        except EngineLost:
            raise RequestRejected(503, "the engine has stopped: retry later", retry_after="5") from None
        return merged

    def _record_wrong_key(self, message: Message) -> None:
        """Count a wrong key that another front-end received."""
        self.wrong_keys.record(message["wrong_key"])

    def _send_metrics(self, message: Message) -> None:
        assert self.connection is not None
        self.connection.notify({"collected": message["collect"], "text": self.metrics.render()})

    async def settings(self, request: Request) -> dict[str, Any]:
        first = self.registry.models[0]
        return {
            "apiKeys": self.api_keys.are_required,
            "charLimit": self.limits.max_characters,
            "frontendTimeout": 500,
            "keyRequired": self.api_keys.are_required,
            "language": {"source": format_language(first.source), "target": format_language(first.target)},
            "suggestions": self.corrections.is_enabled,
            "filesTranslation": True,
            "supportedFilesFormat": list(DOCUMENT_SUFFIXES),
            "textLimit": self.limits.max_texts,
            "alternativesLimit": self.limits.max_alternatives,
        }


async def wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
