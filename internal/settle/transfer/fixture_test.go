package transfer_test

import (
	"time"

	"github.com/settleonce/settleonce/internal/settle"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func message(data string) settle.Delivery {
	return settle.Delivery{Message: settle.Message{ID: "1001", Data: []byte(data)}}
}

const wantsBank = `{"settlement_id":"stl-8472","account_id":"a","amount_cents":1,"creditor_account":"cp-19"}`
