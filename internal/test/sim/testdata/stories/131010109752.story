# seed 131010109752: stl-1: decided at 19:11:59 to send, and resend_not_after is 19:11:55
key lifetime = 24h0m0s
visibility lag = 0s
answer to a known key = the transfer
usual send outcome = is lost
usual processing = none
store = sound
bank at the end = honest
watch until nothing is due = true
ack deadline = 2m0s
#      00:00:00  key lifetime 24h0m0s, visibility lag 0s, ack deadline 2m0s
more instances at the start = 2
clock offset = -5s
configuration = correct
#      00:00:00  instance 1 starts, configuration correct, clock offset -5s
clock offset = 0s
configuration = correct
#      00:00:00  instance 2 starts, configuration correct, clock offset 0s
clock offset = 0s
configuration = correct
#      00:00:00  instance 3 starts, configuration correct, clock offset 0s
step = set a clock
instance = instance 3
new clock offset = 5s
#      00:00:00  the clock offset of instance 3 is set to 5s
step = push
publication = a new payout
new payout = plain
settlement ID = stl-1
#      00:00:00  message stl-1.1 is published: a new payout, plain
instance = instance 1
#      00:00:00  message stl-1.1 is pushed to instance 1, attempt 1
step = reconcile at several due times
rounds = 6
instance = instance 3
#      00:00:00  instance 3 reconciles
#      00:00:00  instance 1: the transaction that settles stl-1 commits
unusual send outcome = false
#      00:00:00  instance 1: the send for stl-1 is lost
#      00:00:00    class uncertain
#      00:00:00  instance 1: the transaction that records the answer about stl-1 commits
#      00:00:00  instance 1 answers 200 to message stl-1.1: applied
push answer = arrives
#      00:00:00  15s pass
instance = instance 3
#      00:00:15  instance 3 reconciles
#      00:00:15  instance 3: the transaction that claims stl-1 commits
status request outcome = is answered
#      00:00:15  instance 3: the status request for stl-1 is answered
#      00:00:15    reading not_found
#      00:00:15  instance 3: the transaction that records the answer about stl-1 commits
#      00:00:15  36.166s pass
instance = instance 3
#      00:00:51  instance 3 reconciles
#      00:00:51  instance 3: the transaction that claims stl-1 commits
status request outcome = is answered
#      00:00:51  instance 3: the status request for stl-1 is answered
#      00:00:51    reading not_found
#      00:00:51  instance 3: the transaction that records the answer about stl-1 commits
unusual send outcome = false
#      00:00:51  instance 3: the send for stl-1 is lost
#      00:00:51    class uncertain
#      00:00:51  instance 3: the transaction that records the answer about stl-1 commits
#      00:00:51  25s pass
instance = instance 2
#      00:01:16  instance 2 reconciles
#      00:01:16  instance 2: the transaction that claims stl-1 commits
status request outcome = is answered slowly
#      00:01:16  instance 2: the status request for stl-1 is answered slowly
status answer = is lost, and the instance crashes
#      00:01:16  instance 2: the status request for stl-1 is lost, and the instance crashes
#      00:01:16  instance 2 crashes
replacement starts at once = true
clock offset = 0s
configuration = correct
#      00:01:16  instance 4 starts, configuration correct, clock offset 0s
#      00:01:16  1m5s pass
instance = instance 1
#      00:02:21  instance 1 reconciles
#      00:02:21  instance 1: the transaction that claims stl-1 commits
status request outcome = is answered
#      00:02:21  instance 1: the status request for stl-1 is answered
#      00:02:21    reading not_found
#      00:02:21  instance 1: the transaction that records the answer about stl-1 commits
#      00:02:21  26.166s pass
instance = instance 1
#      00:02:47  instance 1 reconciles
#      00:02:47  instance 1: the transaction that claims stl-1 commits
status request outcome = is answered
#      00:02:47  instance 1: the status request for stl-1 is answered
#      00:02:47    reading not_found
#      00:02:47  instance 1: the transaction that records the answer about stl-1 commits
step = advance to about the resend limit
before or after = -11s
#      00:02:47  19h8m56.668s pass
step = reconcile
instance = instance 3
#      19:11:44  instance 3 reconciles
step = resume one
call = due
step = resume one
call = change stl-1
#      19:11:44  instance 3: the transaction that claims stl-1 commits
step = ask about the resend limit
before or after = -1s
#      19:11:44  10s pass
instance = instance 1
#      19:11:54  instance 1 reconciles
status request outcome = is answered
#      19:11:54  instance 3: the status request for stl-1 is answered
#      19:11:54    reading not_found
#      19:11:54  broken promise: stl-1: decided at 19:11:59 to send, and resend_not_after is 19:11:55
