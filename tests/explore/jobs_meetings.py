"""Which programs meet in which situations of a job."""

from __future__ import annotations

from tests.explore.jobs_keys import KEYED
from tests.explore.jobs_programs import PROGRAMS as _PROGRAMS
from tests.explore.jobs_sides import SIDES
from tests.explore.jobs_user import USER

PROGRAMS = _PROGRAMS | USER | SIDES | KEYED

_MEETINGS = """
    claim+claim@pending claim+stop@pending claim+add@pending claim+cancel_a@pending
    add+stop@pending add_same+add_same@pending map+stop@pending map+map@pending stop+stop_late@pending
    cancel_a+stop@pending
    name+name@pending name+name_other@pending name+stop@pending name+name_other@last succeed_a+name@last
    name_map+name_map@pending name_map+name_other_map@pending name_map+stop@pending name+name_map@pending

    name_as_old+name_as_a@reclaimed name_other_as_old+name_as_a@reclaimed name_as_a+name_other_as_a@reclaimed
    name_as_old+succeed_a@reclaimed name_as_old+crash_a@reclaimed name_as_a+stop@reclaimed name_as_a+cancel_a@reclaimed
    name_as_a+name_as_a@reclaimed

    succeed_a+add@last succeed_a+add_held@last succeed_a+stop@last adding_a+stop@last adding_a+add@last
    succeed_a+after_a@last fail_a+after_a@last crash_a+stop@last crash_a+after_a@last fail_a+stop@last
    add+stop@last succeed_a+map@last adding_a+adding_a@last cancel_a+add_held@last cancel_a+after_a@last
    stop+stop_late@last

    start_late+start_late@noted start_late+claim@noted start_late+stop@noted start_late+add@noted
    start_late+succeed_a@noted_last start_late+crash_a@noted_last start_late+claim@pending

    succeed_a+succeed_b@two fail_a+succeed_b@two fail_a+fail_b@two succeed_a+cancel_c@two fail_a+cancel_c@two
    fail_a+after_a@two fail_a+after_c@two cancel_c+after_c@two succeed_a+heal@two fail_a+heal@two succeed_a+stop@two
    succeed_a+add_held@two cancel_a+add_held@two succeed_a+after_a@two
    fail_a+stop@two after_c+stop@two heal+heal@two cancel_a+succeed_b@two cancel_a+fail_b@two
    fail_a+fail_b@either succeed_a+fail_b@either

    both+cancel_c@two both_ways+after_c@two both_ways+stop@two both+after_a@two both_fail+cancel_a@two
    both+rescue@expired both+fail_b@either both+succeed_a@two

    chunk0+chunk1@map chunk0+fail_chunk1@map chunk0+stop@map chunk0+heal@map chunks+stop@map chunks+join@bare_map
    chunk0+chunk1@bare_map chunk0+join@bare_map join+join@bare_map succeed_a+join@bare_map
    chunk1+join@half_map fail_chunk1+join@half_map

    succeed_b+retry@failed fail_b+retry@failed retry+retry@failed retry+stop@failed retry+heal@failed
    retry+after_a@failed retry_a+retry@failed succeed_b+retry_a@failed retry+after_c@failed retry_a+fail_b@failed
    retry+retry@over retry+add@over retry+stop@over retry+retry_a@over
    chunk1+retry@map_failed fail_chunk1+retry@map_failed retry+stop@map_failed
    succeed_b+retry_a@loose retry_a+stop_slowly@failed

    heal+succeed_a@miscounted heal+both_ways@miscounted heal+cancel_c@miscounted heal+heal@miscounted
    heal+succeed_b@forgotten heal+fail_b@forgotten heal+cancel_c@forgotten heal+after_c@forgotten heal+stop@forgotten
    heal+succeed_b@forgotten_failure heal+after_c@forgotten_failure heal+retry_a@forgotten_failure

    fail_again_a+stop@last go_on_stopping+retry@stopped retry+retry@stopped retry+claim@stopped
    fail_a+succeed_b@after_all both_ways+after_c@after_all cancel_c+succeed_a@after_all

    stop+claim@stopping succeed_a+stop@stopping crash_a+stop@stopping add+stop@stopping adding_a+stop@stopping
    rescue+rescue@expired rescue+stop@expired rescue+after_a@expired rescue+cancel_a@expired rescue+heal@expired
"""
MEETINGS = _MEETINGS.split()

_USER_MEETINGS = """
    user_adds+start_late@noted user_adds+start_late~@noted user_adds+claim~@noted
    user_adds+claim@pending user_adds+claim~@pending user_adds+stop@pending user_cancels_a+claim~@pending
    user_adds+succeed_a@last user_adds+succeed_a~@last user_adds+crash_a~@last user_depends+succeed_a~@last
    user_depends+succeed_a@two user_depends+fail_a~@two user_depends+both~@two user_cancels_c+succeed_a~@two
    user_cancels_c+fail_a~@two user_cancels_a+succeed_a~@two user_does_all+fail_a@two user_does_all+both_ways~@two
    user_does_several+user_does_all@two user_does_several+stop@two user_does_several+heal~@two
    user_retries_a+succeed_b~@failed user_retries_a+fail_b@failed user_retries_a+stop_slowly@failed
    user_adds+rescue~@expired user_depends+rescue~@expired user_cancels_a+rescue~@expired
    user_cancels_c+heal~@miscounted user_depends+heal~@forgotten
"""
USER_MEETINGS = _USER_MEETINGS.split()

_SIDE_MEETINGS = """
    subscribe+succeed_a@unsubscribed subscribe+cancel_a@pending unsubscribe+succeed_a@subscribed
    pause+succeed_a@subscribed
    fan_out+cancel_b@subscribed fan_out+fail_again_a@subscribed fan_out+succeed_a@subscribed
    fan_out+fan_out@event_pending unsubscribe+fan_out@event_pending pause+fan_out@event_pending
    publish+publish@published publish+fan_out@published publish+unsubscribe@published publish+pause@published
    publish+resume@published succeed_a+publish@subscribed
    add_resource+succeed_a@last add_resource+stop@last add_resource+add_resource@last remove+succeed_a@kept
    remove+add_resource@kept remove+remove@ended remove+add_resource@ended
"""
SIDE_MEETINGS = _SIDE_MEETINGS.split()

_KEY_MEETINGS = """
    key_job+key_job@keyless key_job+key_other_job@keyless key_job+key_run@keyless
    key_job+key_job@keyed key_job+key_other_job@keyed key_run+key_job@keyed key_job+stop_keyed@keyed key_job+claim@keyed
    key_job+key_other_job@keyed_late key_job+key_run@keyed_late key_job+prune@keyed_late
    key_job+prune@keyed_pruned key_other_job+prune@keyed_pruned key_run+prune@keyed_pruned prune+prune@keyed_pruned
    key_job+key_job@keyed_gone key_job+key_other_job@keyed_gone key_job+key_run@keyed_gone key_job+prune@keyed_gone
    key_job+key_other_job@keyed_gone_early key_job+prune@keyed_gone_early
"""
KEY_MEETINGS = _KEY_MEETINGS.split()
