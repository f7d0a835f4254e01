"""Features of each platform: the source of the table in `docs/platforms.md`.

The tests that a feature names show `YES` on every platform. They are in `tests/contracts` or in the stories of teams.
Any other cell is the reason of the platform.
"""

from __future__ import annotations

from dataclasses import dataclass

YES = "yes"


@dataclass(frozen=True)
class Feature:
    """A feature, its cells, and the tests of equal cells."""

    name: str
    slack: str = YES
    discord: str = YES
    terminal: str = YES
    tests: tuple[str, ...] = ()

    @property
    def row(self) -> str:
        """Return the feature as a row of the table."""
        return f"| {self.name} | {self.slack} | {self.discord} | {self.terminal} |"


ALONE = "one user alone, in one conversation"
NO_CHANNELS = "it has no channels"

FEATURES = (
    Feature(
        "Messages for one user are in that user's language and time zone, messages for all users in those of the place",
        discord="yes; the language is that of the app at the last command or click",
        terminal="those of the environment",
        tests=(
            "test_a_private_reply_is_in_the_language_of_its_reader",
            "test_a_turn_is_shown_in_the_language_and_the_time_zone_of_its_place",
        ),
    ),
    Feature(
        "“Today” in a question is the asker's day",
        discord="yes; Discord tells no time zones, `/preferences set` does",
        tests=("test_a_turn_has_the_locales_of_its_author_and_of_the_place",),
    ),
    Feature(
        "Descriptions of commands are in the user's language",
        slack="in English: a manifest has one language",
        discord="yes; names of commands and options stay English",
        terminal="those of the environment",
    ),
    Feature(
        "`/preferences`: a language and a time zone of one's own",
        terminal="those of the environment",
        tests=("test_a_time_zone_that_a_user_has_chosen_counts_for_their_questions",),
    ),
    # Messages in
    Feature(
        "A mention in a channel is answered in a thread, a direct message without a mention",
        terminal=ALONE,
        tests=("test_a_mention_becomes_one_turn_in_a_thread", "test_a_direct_message_needs_no_mention"),
    ),
    Feature(
        "A thread goes on without mentions until a message turns to another user; then the bot waits for a mention",
        discord="yes, with the Message Content intent",
        terminal=ALONE,
        tests=("test_a_thread_goes_on_without_mentions_until_a_message_addresses_another_user",),
    ),
    Feature(
        "Earlier messages of a thread are context, with their authors",
        terminal=ALONE,
        tests=("test_the_context_has_the_messages_of_the_thread_with_their_authors",),
    ),
    Feature(
        "With `RETENTION_DAYS=0`, the history of a conversation is read from its messages",
        slack="yes, the messages of its thread",
        discord="the latest 100 messages of its thread",
        terminal="only within one run of the program",
        tests=("test_a_whole_turn_leaves_nothing_behind_and_the_next_one_reads_it_from_the_platform",),
    ),
    Feature(
        "An edit that adds the mention is a question; an edited question can be asked again",
        discord="yes; the offer is a direct message",
        terminal="a line cannot be edited once it is sent",
        tests=(
            "test_an_edit_that_adds_the_mention_is_a_question_once",
            "test_an_edited_question_can_be_asked_again_by_its_author",
        ),
    ),
    Feature(
        "Emoji, ideographic variants and code arrive as they were written",
        terminal="yes, as far as the terminal can draw them",
        tests=("test_emoji_ideographic_variants_and_code_arrive_whole",),
    ),
    Feature(
        "Files of users reach the model; files of tools are shared",
        terminal="only files of tools, written beside the conversation",
        tests=(
            "test_files_are_attachments_that_can_be_fetched",
            "test_files_of_tools_are_shared_once_also_by_another_process",
        ),
    ),
    Feature(
        "Guests and users of other workspaces get no answer, unless the operator allows it",
        discord="yes; Discord has no guests",
        terminal=ALONE,
        tests=("test_outsiders_are_told_alone_that_they_get_no_answer",),
    ),
    Feature(
        "One deployment serves several workspaces, each with its own admins, servers, approvals and audit",
        slack="yes, those in which the app is [installed](slack.md#several-workspaces)",
        discord="yes, every server that the bot is in",
        terminal=ALONE,
    ),
    Feature(
        "Messages from a downtime are answered later",
        slack="yes, where there was a question in the last day",
        discord="yes, of the last day",
        terminal="no messages arrive meanwhile",
    ),
    Feature("A post in a forum is a question under its title", slack="Slack has no forums", terminal=ALONE),
    Feature(
        "*Ask about this* in the menu of a message",
        terminal="it has no menu of messages",
        tests=("test_a_question_about_a_message_in_a_thread_is_answered_there",),
    ),
    # Turns
    Feature(
        "A quick answer is posted once; a slow one is a new message that notifies with its first words",
        terminal="it notifies of nothing",
        tests=(
            "test_a_quick_answer_is_posted_once_and_never_edited",
            "test_an_answer_after_a_working_message_is_a_message_of_its_own",
            "test_a_slow_answer_of_another_process_is_a_new_message_and_nothing_is_there_twice",
        ),
    ),
    Feature(
        "Before the first word, the platform shows that the bot works",
        slack="yes; a status with its current step, or 👀 at the question where Slack shows none",
        discord="yes; the typing indicator",
        terminal="yes; a line with its current step",
    ),
    Feature(
        "An answer grows in one message, with its tool calls",
        slack="yes; streamed in direct messages",
        discord="yes; edited, because Discord has no streams",
        tests=("test_a_reply_is_one_message_from_its_first_word_to_its_last",),
    ),
    Feature(
        "An answer of any length arrives whole",
        discord="yes; above 10 messages with a file, because a message holds 2,000 characters",
        tests=("test_an_oversize_answer_is_complete_and_a_shorter_one_leaves_nothing_of_it",),
    ),
    Feature("Tables", discord="aligned text, because Discord has no tables", terminal="aligned text"),
    Feature("Stop, check, run again", tests=("test_stop_stops_and_says_so_if_there_was_nothing_to_stop",)),
    Feature(
        "A stopped answer keeps its text and names the user who stopped it, and *Continue* goes on from there",
        terminal="yes; type “continue”",
        tests=("test_stop_keeps_what_was_written_says_who_stopped_and_the_model_goes_on_once",),
    ),
    Feature(
        "Feedback on an answer",
        terminal="the user is the operator",
        tests=("test_feedback_on_an_answer_is_stored",),
    ),
    Feature(
        "A killed process is followed by another, and no message is posted twice",
        terminal="the conversation continues at the next start",
        tests=("test_messages_without_refs_are_found_by_another_process",),
    ),
    # Approvals
    Feature(
        "Approval card with the exact call; it becomes its outcome",
        tests=("test_a_card_becomes_its_outcome_in_the_same_message",),
    ),
    Feature(
        "Several calls on one card, decided one by one or all at once",
        terminal="one after the other",
        tests=("test_calls_on_one_card_are_decided_one_by_one",),
    ),
    Feature(
        "A question before a call that may destroy data",
        slack="yes; a dialog",
        discord="yes; a message, because buttons have no dialog",
        terminal="the card itself, in red",
    ),
    Feature(
        "A card shows what the call is about, by a tool that the operator names",
        tests=("test_a_card_shows_what_the_call_is_about_and_no_model_reads_it",),
    ),
    Feature("Deny with a reason", tests=("test_a_denial_asks_why_and_the_reason_goes_to_the_engine",)),
    Feature(
        "Edit the arguments before the approval",
        tests=("test_the_form_of_a_call_has_its_arguments_and_the_typed_values_reach_the_engine",),
    ),
    Feature(
        "Approve and allow later calls",
        tests=("test_a_call_allowed_in_a_thread_runs_there_until_the_grant_is_revoked",),
    ),
    Feature(
        "View all: the whole call, for the user alone",
        slack="yes; a modal with pages",
        discord="yes; messages, above 4 as a file",
        tests=("test_a_call_with_a_likely_secret_is_approved_only_after_all_of_it_is_read_in_private",),
    ),
    Feature(
        "Cards in another channel, and directly to approvers",
        terminal=NO_CHANNELS,
        tests=(
            "test_a_call_of_one_channel_is_approved_in_another_and_both_show_its_outcome",
            "test_approvers_who_are_named_get_the_card_directly_and_one_of_them_approves",
        ),
    ),
    Feature(
        "A card names and mentions its approvers, once; or tells them in private",
        terminal="only names them",
        tests=(
            "test_an_approver_who_never_wrote_in_the_thread_is_mentioned_on_the_card_and_only_there",
            "test_a_group_of_six_is_mentioned_as_the_group_and_one_of_five_as_its_members",
            "test_approvers_are_told_in_private_with_a_link_or_not_at_all",
        ),
    ),
    Feature(
        "A card says if the user who asked may approve the call; an approver approves calls that delete or name others",
        tests=(
            "test_the_asker_approves_an_ordinary_call_and_an_approver_a_destructive_one",
            "test_a_call_that_names_another_person_needs_an_approver_also_after_an_edit",
        ),
    ),
    Feature(
        "`/approvals`: the calls that wait for me, decided in the list",
        slack="yes; also in Home",
        discord="yes; `/approvals list`",
        terminal="yes; decided by their ids",
        tests=(
            "test_an_approver_decides_in_the_list_of_waiting_calls_oldest_first",
            "test_a_user_who_may_not_decide_sees_nothing_of_the_calls_of_others",
        ),
    ),
    Feature(
        "An old, forged or foreign button decides nothing, and its user reads why",
        terminal="it has no buttons",
        tests=(
            "test_a_forged_button_decides_nothing_and_is_answered",
            "test_a_late_press_of_a_button_that_is_gone_is_answered",
            "test_a_call_of_another_workspace_is_neither_decided_nor_shown",
        ),
    ),
    Feature(
        "An operations channel with one message about each fault",
        terminal=NO_CHANNELS,
        tests=("test_a_fault_is_one_message_that_is_edited_when_it_is_over",),
    ),
    Feature(
        "A saved change of the operator's files is told in a line, an invalid one with its line",
        slack="the log tells it; an invalid one is in the operations channel, too",
        discord="the log tells it; an invalid one is in the operations channel, too",
        terminal="yes; above the prompt",
    ),
    # Elicitations, commands
    Feature(
        "A server asks its user: a form in steps, or a page",
        tests=("test_a_long_form_of_a_server_goes_out_once",),
    ),
    Feature(
        "Commands, typed and behind a slash, answered to their user alone",
        slack="yes; typed commands need no slash",
        tests=("test_a_command_is_answered_to_the_user_alone_and_without_a_reply_it_is_done",),
    ),
    Feature(
        "A resource or a prompt of a server, picked from a list and asked with",
        tests=(
            "test_a_person_picks_a_resource_from_the_list_and_asks_about_it",
            "test_a_person_asks_with_a_prompt_whose_arguments_a_form_asks_for",
        ),
    ),
    Feature(
        "Several agents in one place, asked by name; a thread goes on with the one that was named last",
        terminal="yes; a conversation goes on with it",
        tests=(
            "test_an_agent_that_is_named_answers_and_the_thread_goes_on_with_it",
            "test_a_mistyped_name_is_answered_in_private_with_a_button_that_asks",
            "test_an_agent_of_another_place_is_not_reached",
        ),
    ),
    Feature(
        "Commands and *Ask about this* where the bot is not",
        slack="as far as Slack shows its commands there",
        discord="yes, with User Install",
        terminal=NO_CHANNELS,
    ),
    Feature(
        "Completion of commands and names",
        slack="Slack completes no arguments",
    ),
    Feature(
        "A reply of a command in a typed message",
        slack="ephemeral",
        discord="a direct message, because only interactions allow ephemeral messages",
    ),
    Feature(
        "Forms that correct themselves under their fields",
        slack="yes; in the open modal",
        discord="yes; a button opens the form again, because Discord opens no modal after a modal",
        tests=("test_an_error_stands_under_its_field",),
    ),
    Feature(
        "A limit of requests under way for each user",
        terminal=ALONE,
        tests=("test_one_user_has_a_limit_of_requests_and_holds_up_no_other",),
    ),
    Feature(
        "Suggested prompts, set in the profile",
        discord="Discord has no place for them",
        terminal="it has no place for them",
    ),
    Feature("Home: waiting calls, recent questions, servers", discord="Discord has no home tab", terminal="`/mcp`"),
)
HEAD = "| feature | Slack | Discord | terminal |\n|---|---|---|---|"


def table() -> str:
    """Return the table of all features in Markdown."""
    return "\n".join((HEAD, *(feature.row for feature in FEATURES)))
