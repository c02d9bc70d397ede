def demo() -> None:
    "x"
