"""What a picture carries in its metadata: where it comes from, in the words of its format and as an
XMP packet, which other tools keep where they drop the rest. Equal words give equal bytes."""

from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import matplotlib as mpl
from matplotlib.backends.backend_pdf import Name, PdfFile, PdfPages
from matplotlib.figure import Figure

PDF = ".pdf"
FORMATS = {PDF: "application/pdf", ".png": "image/png"}
# The keyword by which readers of PNG find a packet.
XMP = "XML:com.adobe.xmp"
PACKET = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"
    xmlns:pdf="http://ns.adobe.com/pdf/1.3/">
   <dc:format>{format}</dc:format>
   <dc:source>{origin}</dc:source>
   <pdf:Keywords>{origin}</pdf:Keywords>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="r"?>"""


def save(figure: Figure, path: Path, origin: str) -> None:
    """Write a picture that carries its origin."""
    packet = PACKET.format(format=FORMATS[path.suffix], origin=escape(origin))
    if path.suffix == PDF:
        with _Described(path, {"Keywords": origin, "CreationDate": None}, packet) as pages:
            pages.savefig(figure)
    else:
        # The packet begins with a letter beyond Latin-1, and so becomes iTXt, as readers want it.
        figure.savefig(path, metadata={"Source": origin, XMP: packet})


class _Described(PdfPages):
    """A PDF with a packet; only one that is given as pages is written to a file of one's own."""

    def __init__(self, path: Path, metadata: dict[str, Any], packet: str) -> None:
        super().__init__(path, metadata=metadata)
        self._packet = packet

    def _ensure_file(self) -> PdfFile:
        if self._file is None:
            self._file = _DescribedFile(self._filename, self._metadata)
            self._file.describe(self._packet)
        return self._file


class _DescribedFile(PdfFile):
    """A file whose catalog, the first object that is written, names a packet that comes later."""

    def writeObject(self, object: Any, contents: Any) -> None:
        if object is self.rootObject:
            self._packet = self.reserveObject("metadata")
            contents = {**contents, "Metadata": self._packet}
        super().writeObject(object, contents)

    def describe(self, packet: str) -> None:
        """Write the packet, as it is: readers that know no PDF look for it in the bytes."""
        kind = {"Type": Name("Metadata"), "Subtype": Name("XML")}
        with mpl.rc_context({"pdf.compression": 0}):
            self.outputStream(self._packet, packet.encode(), extra=kind)
