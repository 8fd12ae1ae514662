"""SHA-256 without what importing hashlib costs: OpenSSL's library, a tenth of a start."""

try:
    from _sha2 import sha256 as _sha256  # type: ignore[import-not-found,unused-ignore]  # Python 3.12 and later
except ImportError:
    try:
        from _sha256 import sha256 as _sha256  # type: ignore[import-not-found,no-redef,unused-ignore]
    except ImportError:
        from hashlib import sha256 as _sha256  # type: ignore[assignment,no-redef,unused-ignore]


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 hexadecimal digits."""
    digest: str = _sha256(data).hexdigest()
    return digest
