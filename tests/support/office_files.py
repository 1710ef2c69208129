"""Small office documents, as bytes."""

import io
import zipfile

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
ODF = "urn:oasis:names:tc:opendocument:xmlns"
TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/>'
    "{}</Types>"
)
TYPE_PREFIX = "application/vnd.openxmlformats-officedocument.wordprocessingml."
RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="rId1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="word/document.xml"/></Relationships>'
)


def pack(files: dict[str, str | bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            method = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            archive.writestr(name, content, method)
    return data.getvalue()


def unpack(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def make_docx(body: str, **others: str) -> bytes:
    """Return a Word document. `others` are the contents of parts such as footnotes and header1."""
    types = {"document": "document.main", **{name: name.rstrip("123") for name in others}}
    overrides = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType="{TYPE_PREFIX}{own}+xml"/>'
        for name, own in types.items()
    )
    files: dict[str, str | bytes] = {
        "[Content_Types].xml": TYPES.format(overrides),
        "_rels/.rels": RELATIONS,
        "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
        "word/media/picture.png": b"\x89PNG not really" * 20,
    }
    for name, content in others.items():
        files[f"word/{name}.xml"] = f'<w:part xmlns:w="{WORD}">{content}</w:part>'
    return pack(files)


def make_odt(body: str, styles: str = "") -> bytes:
    namespaces = f'xmlns:office="{ODF}:office:1.0" xmlns:text="{ODF}:text:1.0"'
    return pack(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<office:document-content {namespaces}><office:body><office:text>{body}"
            "</office:text></office:body></office:document-content>",
            "styles.xml": f"<office:document-styles {namespaces}>{styles}</office:document-styles>",
            "META-INF/manifest.xml": "<manifest/>",
        }
    )


def get_part(data: bytes, name: str) -> str:
    """Return a part of a document without its declaration and outer elements' namespaces."""
    return unpack(data)[name].decode()
