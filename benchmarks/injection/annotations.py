"""Annotations of AgentDojo's tools: hints as their servers would give them, and two values that an operator would
set.

`openWorldHint` is set if a tool sends data out (true) or certainly does not (false), and left out if it only reads
data of others, as servers do. All servers are trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.domain.flows import Sends, Words
from bot.domain.tools import Annotations


@dataclass(frozen=True, slots=True)
class Said:
    """A tool's hints and settings."""

    hints: Annotations
    words: Words
    sends: Sends
    recipients: tuple[str, ...] = ()


OWN, SHARED, STRANGERS = Words
CLOSED, TEAM, WORLD = Sends


def _reads(words: Words, sends: Sends = CLOSED, *recipients: str) -> Said:
    open_world = True if sends is WORLD else False if words is OWN else None
    return Said(Annotations(read_only=True, destructive=False, open_world=open_world), words, sends, recipients)


def _adds(sends: Sends, *recipients: str, returns: Words = OWN) -> Said:
    open_world = sends is not CLOSED
    return Said(Annotations(read_only=False, destructive=False, open_world=open_world), returns, sends, recipients)


def _changes(sends: Sends, *recipients: str, returns: Words = OWN) -> Said:
    open_world = sends is not CLOSED
    return Said(Annotations(read_only=False, destructive=True, open_world=open_world), returns, sends, recipients)


SAID: Mapping[str, Said] = {
    # email_client: anyone can send mail to the mailbox
    "send_email": _adds(WORLD, "recipients", "cc", "bcc"),
    "delete_email": _changes(CLOSED),
    **dict.fromkeys(("get_unread_emails", "get_received_emails", "search_emails"), _reads(STRANGERS)),
    **dict.fromkeys(("get_sent_emails", "get_draft_emails"), _reads(STRANGERS)),
    **dict.fromkeys(("search_contacts_by_name", "search_contacts_by_email"), _reads(OWN)),
    # calendar_client: anyone can invite, and participants receive changes
    "get_current_day": _reads(OWN),
    **dict.fromkeys(("search_calendar_events", "get_day_calendar_events"), _reads(STRANGERS)),
    "create_calendar_event": _adds(WORLD, "participants"),
    "add_calendar_event_participants": _adds(WORLD, "participants", returns=STRANGERS),
    "reschedule_calendar_event": _changes(WORLD, returns=STRANGERS),
    "cancel_calendar_event": _changes(WORLD, returns=STRANGERS),
    # cloud_drive_client: others share files with the user
    **dict.fromkeys(("search_files", "search_files_by_filename", "get_file_by_id", "list_files"), _reads(STRANGERS)),
    "create_file": _adds(CLOSED),
    "append_to_file": _changes(CLOSED, returns=STRANGERS),
    "delete_file": _changes(CLOSED, returns=STRANGERS),
    "share_file": _adds(WORLD, "email", returns=STRANGERS),
    # banking_client: the payer writes the subject
    **dict.fromkeys(("get_iban", "get_balance"), _reads(OWN)),
    **dict.fromkeys(("get_most_recent_transactions", "get_scheduled_transactions"), _reads(STRANGERS)),
    **dict.fromkeys(("send_money", "schedule_transaction"), _adds(WORLD, "recipient")),
    "update_scheduled_transaction": _changes(WORLD, "recipient"),
    # file_reader: bills and notices that were sent to the user
    "read_file": _reads(STRANGERS),
    # user_account
    **dict.fromkeys(("get_user_info", "get_user_information"), _reads(OWN)),
    **dict.fromkeys(("update_password", "update_user_info"), _changes(CLOSED)),
    # slack: the members of the workspace and their guests
    **dict.fromkeys(("get_channels", "get_users_in_channel", "read_channel_messages", "read_inbox"), _reads(SHARED)),
    "send_direct_message": _adds(TEAM, "recipient"),
    "send_channel_message": _adds(TEAM, "channel"),
    "add_user_to_channel": _adds(TEAM, "user", "channel"),
    "invite_user_to_slack": _adds(WORLD, "user_email"),
    "remove_user_from_slack": _changes(TEAM),
    # web
    "get_webpage": _reads(STRANGERS, WORLD, "url"),
    "post_webpage": _changes(WORLD, "url"),
    # travel_booking_client: anyone writes reviews, and a reservation notifies a third party
    **dict.fromkeys(
        (
            "get_all_hotels_in_city", "get_hotels_prices", "get_rating_reviews_for_hotels", "get_hotels_address",
            "get_all_restaurants_in_city", "get_cuisine_type_for_restaurants", "get_restaurants_address",
            "get_rating_reviews_for_restaurants", "get_dietary_restrictions_for_all_restaurants",
            "get_contact_information_for_restaurants", "get_price_for_restaurants", "check_restaurant_opening_hours",
            "get_all_car_rental_companies_in_city", "get_car_types_available", "get_rating_reviews_for_car_rental",
            "get_car_fuel_options", "get_car_rental_address", "get_car_price_per_day", "get_flight_information",
        ),
        _reads(STRANGERS),
    ),
    "reserve_hotel": _adds(WORLD, "hotel"),
    "reserve_restaurant": _adds(WORLD, "restaurant"),
    "reserve_car_rental": _adds(WORLD, "company"),
}  # fmt: skip
