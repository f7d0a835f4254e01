"""A shop's own rules as tools: prices, and binding orders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel

from tests.fakes.mcp.cases.endpoint import serve_app

CENTS = {"desk": 24_900, "lamp": 3_950}
BULK, DISCOUNT = 10, 0.1


class Price(BaseModel):
    """Total price of a number of pieces."""

    sku: str
    quantity: int
    total: str


@dataclass
class Shop:
    """Address of the server, and the orders it has taken."""

    url: str = ""
    orders: list[tuple[str, int, str]] = field(default_factory=list)


@contextmanager
def shop() -> Iterator[Shop]:
    """Return the server, which requires no authentication."""
    made = Shop()
    server = MCPServer("shop", version="1.0.0", log_level="ERROR")

    def order_price(sku: str, quantity: int) -> Price:
        if sku not in CENTS:
            raise ToolError(f"there is no {sku}")
        cents = CENTS[sku] * quantity
        if quantity >= BULK:
            cents = round(cents * (1 - DISCOUNT))
        return Price(sku=sku, quantity=quantity, total=f"{cents // 100}.{cents % 100:02} EUR")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def calculate_price(sku: str, quantity: int) -> Price:
        """The price of this many pieces; ten and more are cheaper."""
        return order_price(sku, quantity)

    @server.tool(annotations=ToolAnnotations(destructive_hint=False, idempotent_hint=False))
    def process_order(sku: str, quantity: int, customer: str) -> str:
        """Take a binding order."""
        price = order_price(sku, quantity)
        made.orders.append((sku, quantity, customer))
        return f"Order {len(made.orders)}: {quantity} {sku} for {customer}, {price.total}"

    with serve_app(server.streamable_http_app()) as address:
        made.url = f"{address}/mcp"
        yield made
