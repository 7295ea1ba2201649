"""What pictures carry in their metadata, as other readers of their formats find it."""

import re
import shutil
import struct
import subprocess
import zlib
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from ptq_dynamics.figures import carrying
from ptq_dynamics.figures.settings import ORIGIN
from ptq_dynamics.provenance.archive import identity_in

IDENTITY = "0123456789abcdef" * 4
ORIGINS = {
    scale: ORIGIN.format(scale=scale, identity=IDENTITY) for scale in ("smoke", "a & b <c> größer")
}
SPACES = {"dc": "http://purl.org/dc/elements/1.1/", "pdf": "http://ns.adobe.com/pdf/1.3/"}


def picture(path, origin):
    figure = Figure()
    figure.subplots().plot([1, 2, 4], label="a")
    carrying.save(figure, path, origin)
    return path.read_bytes()


def told(packet):
    """What a packet says, by its properties."""
    (document,) = re.findall(rb"<\?xpacket begin.*?\?>(.*)<\?xpacket end", packet, flags=re.S)
    tree = ElementTree.fromstring(document)
    names = ("dc:format", "dc:source", "pdf:Keywords")
    return {name: tree.findtext(f".//{name}", namespaces=SPACES) for name in names}


def objects(content):
    """Those of a PDF by number, found by its table, and its trailer."""
    start = int(content.rsplit(b"startxref", 1)[1].split()[0])
    assert content[start : start + 4] == b"xref"
    entries = re.findall(rb"(\d{10}) \d{5} ([nf])", content[start:])
    found = {}
    for number, (offset, kind) in enumerate(entries):
        if kind == b"n":
            begins = content[int(offset) :]
            assert begins.startswith(b"%d 0 obj" % number), (number, begins[:40])
            found[number] = begins[: begins.index(b"endobj")]
    assert len(found) == content.count(b" 0 obj\n"), "an object is in no table"
    return found, content[content.rindex(b"trailer") :]


def referred(text, key):
    return int(re.search(rb"/%s (\d+) 0 R" % key, text)[1])


def chunks(content):
    """Those of a PNG, whose sums are right."""
    place = 8
    while place < len(content):
        (size,) = struct.unpack(">I", content[place : place + 4])
        kind, data = content[place + 4 : place + 8], content[place + 8 : place + 8 + size]
        (total,) = struct.unpack(">I", content[place + 8 + size : place + 12 + size])
        assert zlib.crc32(kind + data) == total, kind
        yield kind, data
        place += 12 + size


@pytest.mark.parametrize("origin", ORIGINS.values(), ids=ORIGINS)
def test_the_catalog_of_a_pdf_names_a_packet(tmp_path, origin):
    content = picture(tmp_path / "a.pdf", origin)
    found, trailer = objects(content)
    stream = found[referred(found[referred(trailer, b"Root")], b"Metadata")]
    head, _, rest = stream.partition(b"stream\n")
    assert b"/Type /Metadata" in head and b"/Subtype /XML" in head and b"/Filter" not in head
    packet = rest.removesuffix(b"\nendstream\n")
    assert len(packet) == int(re.search(rb"/Length (\d+)", head)[1])
    wanted = {"dc:format": "application/pdf", "dc:source": origin, "pdf:Keywords": origin}
    assert told(packet) == wanted, packet
    assert b"/Keywords" in found[referred(trailer, b"Info")]


@pytest.mark.parametrize("origin", ORIGINS.values(), ids=ORIGINS)
def test_a_png_has_its_words_and_a_packet(tmp_path, origin):
    found = list(chunks(picture(tmp_path / "a.png", origin)))
    (packet,) = [data for kind, data in found if kind == b"iTXt"]
    # The keyword, not compressed, in no language.
    head = carrying.XMP.encode() + b"\0\0\0\0\0"
    assert packet.startswith(head), packet[:60]
    wanted = {"dc:format": "image/png", "dc:source": origin, "pdf:Keywords": origin}
    assert told(packet) == wanted, packet
    words = [data for kind, data in found if kind == b"tEXt"]
    assert b"Source\0" + origin.encode("latin-1") in words, words


@pytest.mark.parametrize("kind", ["pdf", "png"])
def test_equal_pictures_have_equal_bytes_and_neither_time_nor_place(tmp_path, kind):
    one, other = (picture(tmp_path / f"{name}.{kind}", ORIGINS["smoke"]) for name in ("a", "b"))
    assert one == other
    assert not re.search(rb"Date|\d{4}-\d\d-\d\d|" + str(tmp_path).encode(), one)
    third = picture(tmp_path / f"c.{kind}", ORIGINS["smoke"].replace("0123", "3210"))
    assert len(third) == len(one) and third != one


def test_a_picture_is_known_by_its_packet_where_all_else_is_gone(tmp_path):
    for scale, origin in ORIGINS.items():
        path = tmp_path / "a.pdf"
        # As tools leave it that write a file anew: another dictionary, or one of other letters.
        content = picture(path, origin)
        words, info = rb"/Keywords \(.*?\)\s", re.search(rb"/Info \d+ 0 R", content)[0]
        wide = b"/Keywords <FEFF" + origin.encode("utf-16-be").hex().encode() + b">\n"
        for new, reference in ((b"", b""), (wide, info)):
            rest, changed = re.subn(words, lambda _, new=new: new, content, flags=re.S)
            rest = rest.replace(info, reference)
            path.write_bytes(rest)
            assert changed == 1 and identity_in(path) == (scale, IDENTITY), rest[-600:]
            path.write_bytes(re.sub(rb"<x:xmpmeta.*</x:xmpmeta>", b"", rest, flags=re.S))
            assert identity_in(path) is None
        path = tmp_path / "a.png"
        content = picture(path, origin)
        kept = [(kind, data) for kind, data in chunks(content) if kind != b"tEXt"]
        path.write_bytes(content[:8] + b"".join(map(chunk, kept)))
        assert identity_in(path) == (scale, IDENTITY)
        path.write_bytes(content[:8] + b"".join(chunk(e) for e in kept if e[0] != b"iTXt"))
        assert identity_in(path) is None


def chunk(entry):
    kind, data = entry
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_another_reader_finds_the_packet(tmp_path):
    if shutil.which("pdfinfo") is None:
        pytest.skip("another reader of PDFs is not installed: pdfinfo (poppler-utils)")
    origin = ORIGINS["a & b <c> größer"]
    picture(tmp_path / "a.pdf", origin)
    command = ["pdfinfo", "-meta", tmp_path / "a.pdf"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert told(done.stdout)["dc:source"] == origin and not done.stderr, done
    done = subprocess.run(["pdfinfo", tmp_path / "a.pdf"], capture_output=True, check=True)
    assert origin.encode() in done.stdout and not done.stderr, done
