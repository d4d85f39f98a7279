package payout

import "strings"

// ValidCurrency reports whether code is an ISO 4217 alphabetic code.
func ValidCurrency(code string) bool {
	at := strings.Index(currencyCodes, code)
	return len(code) == currencyCodeLength && at >= 0 && at%(currencyCodeLength+1) == 0
}

const currencyCodeLength = 3

// currencyCodes are the active ISO 4217 alphabetic codes, each followed by a space. A
// test compares them with github.com/bojanz/currency. That package is not linked here:
// with its decimal arithmetic it added a millisecond to every cold start, more than
// this whole module.
const currencyCodes = "" +
	"AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF " +
	"CHE CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP " +
	"GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT " +
	"LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR " +
	"NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN " +
	"SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST XAD " +
	"XAF XCD XCG XOF XPF YER ZAR ZMW ZWG "
