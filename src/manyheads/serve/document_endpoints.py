"""Documents over HTTP: `/translate_file` and `/download_file`, as LibreTranslate has them."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from manyheads.documents.document import Document, read_document
from manyheads.documents.limits import DocumentLimits
from manyheads.documents.suffixes import get_document_suffix
from manyheads.errors import DataError
from manyheads.serve import schemas
from manyheads.serve.client_turns import ClientTurns
from manyheads.serve.clients import identify_client
from manyheads.serve.document_store import DocumentStore
from manyheads.serve.endpoints import Endpoints
from manyheads.serve.limits import ServerLimits
from manyheads.serve.request_parsing import (
    MULTIPART_TYPE,
    parse_form,
    read_form,
    storage_error,
    validate_request,
)
from manyheads.serve.request_policy import check_calibration, create_policy
from manyheads.serve.responses import RequestRejected
from manyheads.serve.served_model import ServedModel
from manyheads.serve.source_language import check_source, detect_source
from manyheads.serve.translation_tasks import DocumentTask
from manyheads.translation import Translation

MAX_DOCUMENTS = 4  # that are in memory at once; others wait
MAX_UNPACKED_BYTES = 2**26
MAX_ARCHIVE_FILES = 2000
SAMPLE_CHARACTERS = 2000  # in which the language is detected


@dataclass(frozen=True)
class UploadedFile:
    name: str
    data: bytes


class DocumentEndpoints:
    def __init__(self, endpoints: Endpoints, folder: str | None = None) -> None:
        self.endpoints, self.store = endpoints, DocumentStore(folder)
        self.turns = ClientTurns(MAX_DOCUMENTS)

    async def translate_file(self, request: Request) -> dict[str, str]:
        limits = self.endpoints.limits
        fields, file = await read_upload(request, limits)
        self.endpoints.admit(request, fields.get("api_key") or fields.pop("apiKey", None))
        query = validate_request(schemas.FileRequest, fields, limits)
        self.endpoints.normalize_languages(query)
        if file is None:
            raise HTTPException(400, "file: Field required, as a part of multipart/form-data with a filename")
        try:
            async with asyncio.timeout(limits.file_timeout), self.turns.take(identify_client(request)):
                data = await self._translate(request, query, file)
        except DataError as error:  # of its file, also where that is noticed in the end
            raise HTTPException(400, str(error)) from None
        except TimeoutError:
            raise RequestRejected(
                503,
                f"not completed within {limits.file_timeout:g} seconds",
                retry_after=str(self.endpoints.queue.retry_after),
            ) from None
        try:
            name = await asyncio.to_thread(self.store.save, data, get_document_suffix(file.name))
        except OSError as error:
            raise storage_error("the translated document", error) from None
        return {"translatedFileUrl": f"{request.url.scheme}://{request.url.netloc}/download_file/{name}"}

    async def _translate(self, request: Request, query: schemas.FileRequest, file: UploadedFile) -> bytes:
        endpoints, policy = self.endpoints, create_policy(query)
        limits = DocumentLimits(MAX_UNPACKED_BYTES, MAX_ARCHIVE_FILES, endpoints.limits.max_file_characters)
        document: Document = await asyncio.to_thread(read_document, file.data, file.name, limits)
        texts = document.texts
        endpoints.metrics.record_characters(sum(map(len, texts)))
        source = self._find_source(query, texts)
        model = endpoints.select_model(source, query)
        translations = [Translation(text, text) for text in texts]
        if model is not None:
            model = await endpoints.apply_adapter(model, query.adapter, request.state.user)
            if policy is not None:
                check_calibration([model])
            translations = await self._translate_texts(request, model, texts)
            endpoints.record_confidences([model] * len(texts), translations)
        return await asyncio.to_thread(document.render, translations, policy)

    def _find_source(self, query: schemas.FileRequest, texts: Sequence[str]) -> str:
        sample = " ".join(texts)[:SAMPLE_CHARACTERS]
        endpoints = self.endpoints
        if query.source == "auto":
            return detect_source(sample, query.target, endpoints.detector, endpoints.registry).code
        if query.source != query.target and check_source(sample, query.source, endpoints.detector).note:
            endpoints.metrics.record_foreign_text()
        return query.source

    async def _translate_texts(
        self, request: Request, model: ServedModel, texts: Sequence[str]
    ) -> list[Translation]:
        """Translate the texts as several requests, one after the other, between those of others."""
        translations: list[Translation] = []
        for batch in split_texts(texts, self.endpoints.limits):
            (results,) = await self.endpoints.run_tasks(request, [(DocumentTask(model), batch)])
            translations += results
        return translations

    async def download_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        data = await asyncio.to_thread(self.store.read, name)
        if data is None:
            raise HTTPException(404, "no such document: translated ones are kept for ten minutes")
        disposition = f'attachment; filename="translation{get_document_suffix(name)}"'
        headers = {"content-disposition": disposition, "cache-control": "no-store"}
        return Response(data, media_type="application/octet-stream", headers=headers)


def split_texts(texts: Sequence[str], limits: ServerLimits) -> Iterator[list[str]]:
    """Yield as many texts at a time as a request may have."""
    batch: list[str] = []
    num_characters = 0
    for text in texts:
        if batch and (len(batch) >= limits.max_texts or num_characters + len(text) > limits.max_characters):
            yield batch
            batch, num_characters = [], 0
        batch.append(text)
        num_characters += len(text)
    if batch:
        yield batch


async def read_upload(request: Request, limits: ServerLimits) -> tuple[dict[str, Any], UploadedFile | None]:
    """Return the fields of a form and its file."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != MULTIPART_TYPE:
        raise HTTPException(415, f"the content type is {media_type[:100]!r}, but must be {MULTIPART_TYPE}")
    fields: dict[str, Any] = parse_form(request.scope["query_string"], limits)
    file = None
    async with read_form(request, limits, max_files=1, max_part_size=limits.max_file_bytes) as form:
        for key, value in form.multi_items():
            if not isinstance(value, UploadFile):
                fields[key] = value
            elif key == "file":
                file = UploadedFile(clean_name(value.filename or ""), await value.read())
            else:
                raise HTTPException(400, f"the file is the field {key[:100]!r}, but must be the field 'file'")
    return fields, file


def clean_name(name: str) -> str:
    """Return the last part of a file name, printable and short, for messages and its ending."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(character for character in last if character.isprintable())[-100:]
