# seed 110663916971: the rows break a rule: settlement "stl-1": latest send 24h37m19.56s after the first; no send before the first or after resend_not_after
key lifetime = 24h0m0s
visibility lag = 0s
answer to a known key = the transfer
usual send outcome = none
usual processing = rejects
store = faulty
bank at the end = honest
watch until nothing is due = true
ack deadline = 2m0s
#      00:00:00  key lifetime 24h0m0s, visibility lag 0s, ack deadline 2m0s
more instances at the start = 1
clock offset = 0s
configuration = correct
#      00:00:00  instance 1 starts, configuration correct, clock offset 0s
clock offset = 0s
configuration = correct
#      00:00:00  instance 2 starts, configuration correct, clock offset 0s
step = push and finish
publication = a new payout
new payout = plain
settlement ID = stl-1
#      00:00:00  message stl-1.1 is published: a new payout, plain
instance = instance 1
#      00:00:00  message stl-1.1 is pushed to instance 1, attempt 1
#      00:00:00  instance 1: the transaction that settles stl-1 commits
unusual processing = false
shown after half lags = 0
#      00:00:00    the bank: rejects; decided after 0s, returned after 0s, shown after 0s
#      00:00:00  instance 1: the send for stl-1 is answered: rejected
#      00:00:00  instance 1: the transaction that records the answer about stl-1 commits
#      00:00:00  instance 1 answers 200 to message stl-1.1: applied
step = reconcile at several due times
rounds = 1
#      00:00:00  24h36m39.56s pass
instance = instance 1
#   1d 00:36:39  instance 1 reconciles
read outcome = is answered
commit outcome = commits, answer pending
#   1d 00:36:39  instance 1: the transaction that claims stl-1 commits, answer pending
commit answer = is not answered
#   1d 00:36:39  instance 1: the transaction that claims stl-1 is not answered
read outcome = is answered
end of the steps = reached
#   1d 00:36:39  1m5s pass
#   1d 00:37:44  instance 1 reconciles
#   1d 00:37:44  instance 1: the transaction that claims stl-1 commits
#   1d 00:37:44  broken promise: the rows break a rule: settlement "stl-1": latest send 24h37m19.56s after the first; no send before the first or after resend_not_after
