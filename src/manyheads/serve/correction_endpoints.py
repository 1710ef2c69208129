"""`POST /suggest` and its undo: find the model of a request, and store the correction of its user."""

from fastapi import Request

from manyheads.serve import schemas
from manyheads.serve.endpoints import Endpoints
from manyheads.serve.served_model import ServedModel
from manyheads.serve.source_language import detect_source


class CorrectionEndpoints:
    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints

    async def suggest(self, request: Request) -> dict[str, bool]:
        """Store a correction, as LibreTranslate's endpoint does."""
        query = await self.endpoints.parse_request(request, schemas.SuggestRequest)
        corrections = self.endpoints.corrections
        corrections.check_enabled()
        await corrections.add(self._find_model(query), query.q, query.s, request.state.user)
        return {"success": True}

    async def undo(self, request: Request) -> dict[str, bool]:
        query = await self.endpoints.parse_request(request, schemas.UndoRequest)
        corrections = self.endpoints.corrections
        corrections.check_enabled()
        return {"success": await corrections.undo(self._find_model(query), query.q, request.state.user)}

    def _find_model(self, query: schemas.UndoRequest) -> ServedModel:
        registry, source = self.endpoints.registry, query.source
        if source == "auto":
            source = detect_source(query.q, query.target, self.endpoints.detector, registry).code
        return registry.find_model(source, query.target, query.model)
